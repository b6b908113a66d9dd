/* count_sqlite FILE TIMES [again]: count in a database of SQLite, one transaction each; "again": a lock that ends with EIO is asked for
   again, in the file opened anew (decision 0199). Declares what it needs: no header has to be installed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { IOERR_CHECKRESERVEDLOCK = 3594, IOERR_LOCK = 3850 };

typedef struct sqlite3 sqlite3;
int sqlite3_open(const char *name, sqlite3 **db);
int sqlite3_close(sqlite3 *db);
int sqlite3_busy_timeout(sqlite3 *db, int ms);
int sqlite3_extended_errcode(sqlite3 *db);
int sqlite3_system_errno(sqlite3 *db);
int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *data, char **error);
const char *sqlite3_errmsg(sqlite3 *db);

static sqlite3 *opened(const char *name)
{
    sqlite3 *db;
    if (sqlite3_open(name, &db) != 0)
        exit(2);
    sqlite3_busy_timeout(db, 200000);
    return db;
}

static int is_eio_of_a_lock(sqlite3 *db)
{
    int code = sqlite3_extended_errcode(db);
    return (code == IOERR_LOCK || code == IOERR_CHECKRESERVEDLOCK) && sqlite3_system_errno(db) == EIO;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4)
        return 2;
    sqlite3 *db = opened(argv[1]);
    for (int i = atoi(argv[2]); i > 0;) {
        if (sqlite3_exec(db, "BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT", NULL, NULL, NULL) == 0) {
            i--;
        } else if (argc == 4 && is_eio_of_a_lock(db)) {
            sqlite3_close(db);
            usleep(100000);
            db = opened(argv[1]);
        } else {
            fprintf(stderr, "%s (%d, errno %d)\n", sqlite3_errmsg(db), sqlite3_extended_errcode(db), sqlite3_system_errno(db));
            return 1;
        }
    }
    return 0;
}
