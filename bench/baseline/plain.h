// What the plain programs share. `PROGRAM` is the name that their messages begin with.

#pragma once

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static inline void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", PROGRAM, what, strerror(errno));
    exit(1);
}

static inline double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// A process that ends with its parent.
static inline pid_t child(void) {
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}
