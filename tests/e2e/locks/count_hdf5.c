/* count_hdf5 create FILE | add FILE TIMES | hold FILE | try FILE: an attribute of a file of HDF5's, under its own lock. */
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int add(hid_t file)
{
    int n = 0;
    hid_t attribute = H5Aopen(file, "n", H5P_DEFAULT);
    if (H5Aread(attribute, H5T_NATIVE_INT, &n) < 0)
        return -1;
    n++;
    if (H5Awrite(attribute, H5T_NATIVE_INT, &n) < 0)
        return -1;
    H5Aclose(attribute);
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    char go[4096], held[4096];
    snprintf(go, sizeof go, "%s.go", argv[2]);
    snprintf(held, sizeof held, "%s.held", argv[2]);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (strcmp(argv[1], "create") == 0) {
        hid_t file = H5Fcreate(argv[2], H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
        int n = 0;
        hid_t attribute = H5Acreate2(file, "n", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(attribute, H5T_NATIVE_INT, &n);
        H5Aclose(attribute);
        H5Sclose(space);
        return H5Fclose(file) < 0;
    }
    if (strcmp(argv[1], "try") == 0) {
        hid_t file = H5Fopen(argv[2], H5F_ACC_RDWR, H5P_DEFAULT);
        puts(file < 0 ? "refused" : "opened");
        return 0;
    }
    for (int left = argc > 3 ? atoi(argv[3]) : 1; left > 0;) {
        hid_t file = H5Fopen(argv[2], H5F_ACC_RDWR, H5P_DEFAULT);
        if (file < 0) {
            usleep(20000);
            continue;
        }
        int n = add(file);
        if (strcmp(argv[1], "hold") == 0) {
            close(open(held, O_CREAT | O_WRONLY, 0644));
            while (access(go, F_OK) != 0)
                usleep(200000);
        }
        if (n < 0 || H5Fclose(file) < 0)
            return 1;
        printf("%d\n", n);
        left--;
    }
    return 0;
}
