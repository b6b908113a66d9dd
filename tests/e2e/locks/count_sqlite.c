/* count_sqlite FILE TIMES: count in a database of SQLite, one transaction each. Declares what it needs: no header has to be installed. */
#include <stdio.h>
#include <stdlib.h>

typedef struct sqlite3 sqlite3;
int sqlite3_open(const char *name, sqlite3 **db);
int sqlite3_busy_timeout(sqlite3 *db, int ms);
int sqlite3_extended_errcode(sqlite3 *db);
int sqlite3_system_errno(sqlite3 *db);
int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *data, char **error);
const char *sqlite3_errmsg(sqlite3 *db);

int main(int argc, char **argv)
{
    sqlite3 *db;
    if (argc != 3 || sqlite3_open(argv[1], &db) != 0)
        return 2;
    sqlite3_busy_timeout(db, 200000);
    for (int i = atoi(argv[2]); i > 0; i--)
        if (sqlite3_exec(db, "BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT", NULL, NULL, NULL) != 0) {
            fprintf(stderr, "%s (%d, errno %d)\n", sqlite3_errmsg(db), sqlite3_extended_errcode(db), sqlite3_system_errno(db));
            return 1;
        }
    return 0;
}
