/* Loaded before the C library (LD_PRELOAD): counts what a process does to the files below a
 * directory, makes the N-th of these operations fail or kills the process there, and logs them.
 *
 * A program arms it with faults_log and faults_arm; a command with the variables FAULTS_DIRECTORY,
 * FAULTS_MATCH (part of the path), FAULTS_N, FAULTS_ERROR (a number of errno; 0 kills) and
 * FAULTS_LOG. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[PATH_MAX], match[PATH_MAX];
static long target, count;
static int fault, log_file = -1;

void faults_arm(const char *below, const char *part, long n, int error) {
  snprintf(match, sizeof match, "%s", part);
  target = n, fault = error, count = 0;
  snprintf(directory, sizeof directory, "%s", below);
}

void faults_log(const char *path) { log_file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600); }

long faults_count(void) { return count; }

__attribute__((constructor)) static void begin(void) {
  const char *below = getenv("FAULTS_DIRECTORY"), *part = getenv("FAULTS_MATCH");
  const char *n = getenv("FAULTS_N"), *error = getenv("FAULTS_ERROR"), *log = getenv("FAULTS_LOG");
  if (log) faults_log(log);
  if (below) faults_arm(below, part ? part : "", n ? atol(n) : 0, error ? atoi(error) : 0);
}

/* The absolute path of `path`, relative to the directory `at`, or of an open file. */
static void locate(char *found, int at, const char *path) {
  char link[64], base[PATH_MAX] = "";
  ssize_t length;
  if (path && path[0] == '/') { snprintf(found, PATH_MAX, "%s", path); return; }
  if (at == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) base[0] = 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    length = readlink(link, base, sizeof base - 1);
    base[length < 0 ? 0 : length] = 0;
  }
  if (path) snprintf(found, PATH_MAX, "%.2000s/%.2000s", base, path);
  else snprintf(found, PATH_MAX, "%s", base);
}

/* Whether the operation shall fail; errno is set then. */
static int fails(const char *operation, const char *path, const char *other) {
  char line[2 * PATH_MAX + 32];
  int length, earlier = errno;
  if (!directory[0] || strncmp(path, directory, strlen(directory))) return 0;
  if (log_file >= 0) {
    length = snprintf(line, sizeof line, "%s\t%s\t%s\n", operation, path, other);
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (real(log_file, line, length) < 0) abort();
  }
  errno = earlier;
  if (match[0] && !strstr(path, match)) return 0;
  if (++count != target) return 0;
  if (!fault) raise(SIGKILL);
  errno = fault;
  return 1;
}

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define MODE mode_t mode = 0; \
  if (flags & O_CREAT) { va_list list; va_start(list, flags); mode = va_arg(list, int); va_end(list); }
#define OPENED(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT) ? "create" : "open")

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    char found[PATH_MAX]; MODE REAL(int, #name, const char *, int, ...); \
    locate(found, AT_FDCWD, path); \
    return fails(OPENED(flags), found, "") ? -1 : real(path, flags, mode); }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
  int name(int at, const char *path, int flags, ...) { \
    char found[PATH_MAX]; MODE REAL(int, #name, int, const char *, int, ...); \
    locate(found, at, path); \
    return fails(OPENED(flags), found, "") ? -1 : real(at, path, flags, mode); }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
  FILE *name(const char *path, const char *mode) { \
    char found[PATH_MAX]; REAL(FILE *, #name, const char *, const char *); \
    locate(found, AT_FDCWD, path); \
    return fails(mode[0] == 'r' ? "open" : "create", found, "") ? NULL : real(path, mode); }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void *content, size_t size) {
  char found[PATH_MAX]; REAL(ssize_t, "write", int, const void *, size_t);
  locate(found, file, NULL);
  return fails("write", found, "") ? -1 : real(file, content, size);
}

size_t fwrite(const void *content, size_t size, size_t number, FILE *file) {
  char found[PATH_MAX]; REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
  locate(found, fileno(file), NULL);
  return fails("write", found, "") ? 0 : real(content, size, number, file);
}

#define SENDFILE(name) \
  ssize_t name(int out, int in, off_t *offset, size_t size) { \
    char found[PATH_MAX]; REAL(ssize_t, #name, int, int, off_t *, size_t); \
    locate(found, out, NULL); \
    return fails("write", found, "") ? -1 : real(out, in, offset, size); }
SENDFILE(sendfile)
SENDFILE(sendfile64)

#define TRUNCATE(name) \
  int name(int file, off_t size) { \
    char found[PATH_MAX]; REAL(int, #name, int, off_t); \
    locate(found, file, NULL); \
    return fails("write", found, "") ? -1 : real(file, size); }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(name) \
  int name(int file) { \
    char found[PATH_MAX]; REAL(int, #name, int); \
    locate(found, file, NULL); \
    return fails("sync", found, "") ? -1 : real(file); }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
  char found[PATH_MAX], other[PATH_MAX]; REAL(int, "rename", const char *, const char *);
  locate(found, AT_FDCWD, from), locate(other, AT_FDCWD, to);
  return fails("rename", found, other) ? -1 : real(from, to);
}

#define REMOVE(name) \
  int name(const char *path) { \
    char found[PATH_MAX]; REAL(int, #name, const char *); \
    locate(found, AT_FDCWD, path); \
    return fails("remove", found, "") ? -1 : real(path); }
REMOVE(unlink)
REMOVE(rmdir)

int unlinkat(int at, const char *path, int flags) {
  char found[PATH_MAX]; REAL(int, "unlinkat", int, const char *, int);
  locate(found, at, path);
  return fails("remove", found, "") ? -1 : real(at, path, flags);
}

int mkdir(const char *path, mode_t mode) {
  char found[PATH_MAX]; REAL(int, "mkdir", const char *, mode_t);
  locate(found, AT_FDCWD, path);
  return fails("create", found, "") ? -1 : real(path, mode);
}
