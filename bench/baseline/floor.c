// The floor under connecting: how many empty TCP connections a second this machine opens, with both ends here.
// Processes with SO_REUSEPORT listeners accept into an epoll set; as many processes connect. No upgrade, no
// bytes. Compare the rate of a WebSocket server and its crowd with this figure of the same minute: machines
// differ, and a shared machine differs from minute to minute.
//
//     floor [--connections N] [--processes N]        prints one JSON object

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#define PROGRAM "floor"
#include "plain.h"

enum {
    CONNECTIONS_DEFAULT = 100000,
    PROCESSES_DEFAULT = 16,
    // Connects in progress in a client process: enough that it never waits for one answer.
    WINDOW = 64,
    EVENTS_PER_WAIT = 256,
    BACKLOG = 65535,
};

enum stage { WAITING, CONNECTING, OVER };

struct shared {
    _Atomic int stage;
    _Alignas(64) _Atomic long accepted;
    _Alignas(64) _Atomic long connected;
};

static struct shared *shared;
static struct sockaddr_in target;

static int listener_open(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0
        || bind(listener, (struct sockaddr *)&target, sizeof target) < 0)
        fail("cannot bind");
    socklen_t size = sizeof target;
    if (getsockname(listener, (struct sockaddr *)&target, &size) < 0) fail("getsockname");
    return listener;
}

static void watch(int set, int descriptor, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = descriptor};
    if (epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) < 0) fail("epoll_ctl");
}

static void serve(int listener) {
    struct epoll_event events[EVENTS_PER_WAIT];
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0 || listen(listener, BACKLOG) < 0) fail("cannot listen");
    watch(set, listener, EPOLLIN);
    for (;;) {
        if (epoll_wait(set, events, EVENTS_PER_WAIT, -1) < 0 && errno != EINTR) fail("epoll_wait");
        int descriptor;
        while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
            watch(set, descriptor, EPOLLIN | EPOLLRDHUP);
            atomic_fetch_add_explicit(&shared->accepted, 1, memory_order_relaxed);
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail("accept4");
    }
}

// Each client process has its own source address: an address has some 28,000 ports.
static int begin(int set, int number) {
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f400001u + (uint32_t)number)};
    if (descriptor < 0 || setsockopt(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) < 0
        || bind(descriptor, (struct sockaddr *)&source, sizeof source) < 0)
        fail("no client socket");
    if (connect(descriptor, (struct sockaddr *)&target, sizeof target) < 0 && errno != EINPROGRESS) fail("connect");
    watch(set, descriptor, EPOLLOUT | EPOLLONESHOT);
    return descriptor;
}

// Closes with RST: a FIN would leave the socket in TIME_WAIT for a minute, into the next run.
static void reset_all(int descriptor_last) {
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    for (int descriptor = 3; descriptor <= descriptor_last; descriptor++) {
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        close(descriptor);
    }
}

static void crowd(int number, long wanted) {
    struct epoll_event events[EVENTS_PER_WAIT];
    int set = epoll_create1(EPOLL_CLOEXEC), descriptor_last = set;
    long begun = 0, connected = 0;
    while (atomic_load(&shared->stage) != CONNECTING) usleep(1000);
    while (connected < wanted) {
        while (begun < wanted && begun - connected < WINDOW) descriptor_last = begin(set, number), begun++;
        int count = epoll_wait(set, events, EVENTS_PER_WAIT, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].events & (EPOLLERR | EPOLLHUP)) fail("a connect was refused");
            connected++;
        }
        atomic_fetch_add_explicit(&shared->connected, count > 0 ? count : 0, memory_order_relaxed);
    }
    while (atomic_load(&shared->stage) != OVER) usleep(1000);
    reset_all(descriptor_last);
}

static long option(int count, char **words, const char *name, long value, long largest) {
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], name) == 0) value = atol(words[i + 1]);
    }
    if (value < 1 || value > largest) {
        fprintf(stderr, "floor: %s takes a number from 1 to %ld\n", name, largest);
        exit(104);
    }
    return value;
}

static long processes_needed(long connections, long at_least) {
    int descriptors = descriptor_limit_raise();
    if (descriptors < 0) fail("the descriptor limit");
    long processes = processes_for(connections, descriptors, (int)at_least);
    if (processes == 0) {
        fprintf(stderr, "floor: %ld connections need more than %d processes of %d descriptors each\n", connections,
                PROCESSES_MAX, descriptors);
        exit(1);
    }
    return processes;
}

int main(int count, char **words) {
    long connections = option(count, words, "--connections", CONNECTIONS_DEFAULT, 4000000);
    long processes = option(count, words, "--processes", PROCESSES_DEFAULT, PROCESSES_MAX);
    processes = processes_needed(connections, processes);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pid_t pids[2 * PROCESSES_MAX];
    int pid_count = 0;
    // The first listener chooses the port. All listeners exist before the first client.
    for (long i = 0; i < processes; i++) {
        int listener = listener_open();
        pid_t pid = child();
        if (pid == 0) serve(listener);
        close(listener);
        pids[pid_count++] = pid;
    }
    usleep(200000);
    for (long i = 0; i < processes; i++) {
        long share = connections / processes + (i < connections % processes);
        pid_t pid = child();
        if (pid == 0) crowd((int)i, share), _exit(0);
        pids[pid_count++] = pid;
    }
    usleep(200000);
    double started = now_s(), limit = started + 120;
    atomic_store(&shared->stage, CONNECTING);
    while (atomic_load(&shared->connected) < connections || atomic_load(&shared->accepted) < connections) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0 || now_s() > limit) {
            fprintf(stderr, "floor: a process ended, or two minutes were not enough\n");
            for (int i = 0; i < pid_count; i++) kill(pids[i], SIGKILL);
            return 1;
        }
        usleep(1000);
    }
    double elapsed = now_s() - started;
    printf("{\"connections\": %ld, \"processes\": %ld, \"elapsed_s\": %.3f, \"rate_per_s\": %.0f}\n", connections,
           processes, elapsed, (double)connections / elapsed);
    atomic_store(&shared->stage, OVER);
    for (int i = (int)processes; i < pid_count; i++) waitpid(pids[i], NULL, 0);
    for (int i = 0; i < (int)processes; i++) kill(pids[i], SIGKILL);
    return 0;
}
