/* Preloaded into a server by tests/server/chaos.py: the clock is elsewhere, or no file can be written.

   Two numbers in a file that is mapped, so that they change while the server runs: seconds that the clock of the day is
   off, and the error that writing fails with, 0 for none. Deadlines of the same clock are moved back, as a clock that
   is set moves them for the system. Sockets and pipes are written as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct disturbance { volatile long seconds, fails; };
static struct disturbance none, *now = &none;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define LEAST_DATE 500000000L /* a deadline before it is of the clock that begins with the machine */

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("DPDUCK_DISTURBED");
  long file = name ? syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, (int)file, 0);
  if (at != MAP_FAILED) now = at;
  syscall(SYS_close, file);
}

int clock_gettime(clockid_t clock, struct timespec *to) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = REAL(clock_gettime);
  int found = real(clock, to);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) to->tv_sec += now->seconds;
  return found;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
  int found = real(to, zone);
  to->tv_sec += now->seconds;
  return found;
}

time_t time(time_t *to) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to) *to = at.tv_sec;
  return at.tv_sec;
}

static struct timespec moved(const struct timespec *given) {
  struct timespec to = *given;
  if (to.tv_sec > LEAST_DATE) to.tv_sec -= now->seconds;
  return to;
}

int sem_timedwait(sem_t *restrict on, const struct timespec *restrict until) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = REAL(sem_timedwait);
  struct timespec to = moved(until);
  return real(on, &to);
}

int pthread_cond_timedwait(pthread_cond_t *restrict on, pthread_mutex_t *restrict with,
                           const struct timespec *restrict until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  /* without its version it may be that of another layout of conditions, which waits for ever */
  if (!real) real = (__typeof__(&pthread_cond_timedwait))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = REAL(pthread_cond_timedwait);
  struct timespec to = moved(until);
  return real(on, with, &to);
}

static int fails(int file) {
  struct stat about;
  if (!now->fails || fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  errno = (int)now->fails;
  return 1;
}

#define WRITES(name, kind, given, passed)                                                                             \
  kind name given {                                                                                                    \
    static kind(*real) given;                                                                                          \
    if (!real) real = REAL(name);                                                                                      \
    return fails(file) ? -1 : real passed;                                                                             \
  }
WRITES(write, ssize_t, (int file, const void *from, size_t size), (file, from, size))
WRITES(pwrite, ssize_t, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
WRITES(pwrite64, ssize_t, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
WRITES(writev, ssize_t, (int file, const struct iovec *parts, int count), (file, parts, count))
WRITES(ftruncate, int, (int file, off_t size), (file, size))
WRITES(ftruncate64, int, (int file, off64_t size), (file, size))
WRITES(fallocate, int, (int file, int mode, off_t from, off_t size), (file, mode, from, size))

static int opens(const char *name, int flags) {
  struct stat about;
  if (now->fails != EROFS || !(flags & (O_WRONLY | O_RDWR | O_CREAT))) return 0;
  if (stat(name, &about) == 0 && !S_ISREG(about.st_mode)) return 0;
  errno = EROFS;
  return 1;
}

#define OPENS(name, given, passed)                                                                                    \
  int name given {                                                                                                     \
    static int(*real) given;                                                                                           \
    if (!real) real = (int(*) given)dlsym(RTLD_NEXT, #name);                                                          \
    va_list rest;                                                                                                      \
    va_start(rest, flags);                                                                                             \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                                  \
    va_end(rest);                                                                                                      \
    return opens(path, flags) ? -1 : real passed;                                                                      \
  }
OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPENS(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
