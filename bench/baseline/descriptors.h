// RLIMIT_NOFILE bounds each process: the descriptors of a process, and the processes that a crowd needs.

#pragma once

#include <limits.h>
#include <sys/resource.h>

enum {
    PROCESSES_MAX = 1024,
    // Beside connections: standard streams, listener, epoll set, pipes to the parent.
    DESCRIPTORS_KEPT = 32,
    // Listeners share connections by hash. The fullest of them has this many standard deviations more than the
    // mean, at most.
    DEVIATIONS_KEPT = 5,
};

// Raises the soft limit to the hard one and returns it, or -1 and errno.
static inline int descriptor_limit_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -1;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0) return -1;
    return limit.rlim_cur > INT_MAX ? INT_MAX : (int)limit.rlim_cur;
}

// How many processes hold the connections, even if they spread unevenly: the mean and DEVIATIONS_KEPT standard
// deviations of a binomial spread must fit one table. 0 if even PROCESSES_MAX processes do not suffice.
static inline int processes_for(long connections, int descriptor_limit, int at_least) {
    int room = descriptor_limit - DESCRIPTORS_KEPT;
    for (int processes = at_least; processes <= PROCESSES_MAX; processes++) {
        double mean = (double)connections / processes, deviation = 1;
        while (deviation * deviation < mean) deviation++;
        if (mean + DEVIATIONS_KEPT * deviation <= room) return processes;
    }
    return 0;
}
