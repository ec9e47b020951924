/* Makes the wall clock of a program jump: clock_gettime(CLOCK_REALTIME) is off by the number of seconds in the file JUMP_FILE. For
   LD_PRELOAD. The monotonic clock is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long jump(void)
{
    const char *path = getenv("JUMP_FILE");
    char text[32];
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return 0;
    text[length] = 0;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*of_libc)(clockid_t, struct timespec *);
    if (!of_libc)
        of_libc = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = of_libc(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += jump();
    return result;
}
