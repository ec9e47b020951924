// The floor under echoes: how many small messages a second come back over TCP on this machine, with both ends here. One process
// sends back what it reads, and one sends the next message on a connection when the last one is back. Both wait with epoll and do
// nothing else. Compare the rate of a WebSocket server and its crowd with this figure of the same minute: machines differ, and a
// shared machine differs from minute to minute.
//
//     echoes [--connections N] [--bytes N] [--seconds N]        prints one JSON object

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descriptors.h"

enum {
    CONNECTIONS_DEFAULT = 500,
    // An address has some 28,000 ports, and both processes have one descriptor for each connection.
    CONNECTIONS_MAX = 28000,
    // Beside those of the connections, a process may have inherited some.
    DESCRIPTORS_MAX = CONNECTIONS_MAX + 1000,
    BYTES_DEFAULT = 64,
    BYTES_MAX = 16384,
    SECONDS_DEFAULT = 3,
    SECONDS_MAX = 60,
    EVENTS_PER_WAIT = 1024,
    BACKLOG = 65535,
};

struct shared {
    // Connections on which messages come back.
    _Atomic long running;
    _Alignas(64) _Atomic long echoes;
};

static struct shared *shared;
static struct sockaddr_in target;
static char message[BYTES_MAX];
// Of the crowd.
static int descriptors[CONNECTIONS_MAX];
// By descriptor: what has come back of the message that is on its way.
static long back[DESCRIPTORS_MAX];

static void fail(const char *what) {
    fprintf(stderr, "echoes: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int set_of(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) fail("epoll_create1");
    return set;
}

static void watch(int set, int descriptor) {
    int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    if (epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) < 0) fail("epoll_ctl");
}

static int listener_open(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof target;
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (listener < 0 || bind(listener, (struct sockaddr *)&target, size) < 0 || listen(listener, BACKLOG) < 0
        || getsockname(listener, (struct sockaddr *)&target, &size) < 0)
        fail("cannot listen");
    return listener;
}

// A socket buffer holds far more than the one message that is on its way, so a send takes it whole.
static void send_whole(int descriptor, const char *bytes, long size) {
    if (send(descriptor, bytes, (size_t)size, MSG_NOSIGNAL) != size) fail("send");
}

static void serve(int listener) {
    struct epoll_event events[EVENTS_PER_WAIT];
    char bytes[BYTES_MAX];
    int set = set_of();
    watch(set, listener);
    for (;;) {
        int count = epoll_wait(set, events, EVENTS_PER_WAIT, -1);
        for (int i = 0; i < count; i++) {
            int descriptor = events[i].data.fd;
            if (descriptor == listener) {
                while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) watch(set, descriptor);
                continue;
            }
            long size = recv(descriptor, bytes, sizeof bytes, 0);
            if (size > 0) send_whole(descriptor, bytes, size);
            if (size == 0) _exit(0);
        }
    }
}

static int connected_to_target(void) {
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || connect(descriptor, (struct sockaddr *)&target, sizeof target) < 0) fail("connect");
    // Closes with RST: a FIN would leave the socket in TIME_WAIT for a minute, into the next run.
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return descriptor;
}

static void crowd(long connections, long size) {
    struct epoll_event events[EVENTS_PER_WAIT];
    char bytes[BYTES_MAX];
    int set = set_of();
    for (long i = 0; i < connections; i++) {
        int descriptor = descriptors[i] = connected_to_target();
        watch(set, descriptor);
        if (descriptor >= DESCRIPTORS_MAX) fail("a descriptor beyond the array");
    }
    for (long i = 0; i < connections; i++) send_whole(descriptors[i], message, size);
    for (;;) {
        int count = epoll_wait(set, events, EVENTS_PER_WAIT, -1);
        long echoes = 0;
        for (int i = 0; i < count; i++) {
            int descriptor = events[i].data.fd;
            long came = recv(descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
            if (came <= 0) fail("recv");
            back[descriptor] += came;
            if (back[descriptor] < size) continue;
            back[descriptor] = 0;
            echoes++;
            send_whole(descriptor, message, size);
        }
        atomic_fetch_add_explicit(&shared->echoes, echoes, memory_order_relaxed);
        if (atomic_load_explicit(&shared->running, memory_order_relaxed) == 0) atomic_store(&shared->running, connections);
    }
}

static long option(int count, char **words, const char *name, long value, long largest) {
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], name) == 0) value = atol(words[i + 1]);
    }
    if (value < 1 || value > largest) {
        fprintf(stderr, "echoes: %s takes a number from 1 to %ld\n", name, largest);
        exit(104);
    }
    return value;
}

static pid_t child(void) {
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

// Waits with an eye on both processes: false if one has ended.
static int pause_until(double until, int while_not_running) {
    int status;
    while (now_s() < until && !(while_not_running && atomic_load(&shared->running) > 0)) {
        if (waitpid(-1, &status, WNOHANG) > 0) return 0;
        usleep(1000);
    }
    return 1;
}

int main(int count, char **words) {
    long connections = option(count, words, "--connections", CONNECTIONS_DEFAULT, CONNECTIONS_MAX);
    long size = option(count, words, "--bytes", BYTES_DEFAULT, BYTES_MAX);
    long seconds = option(count, words, "--seconds", SECONDS_DEFAULT, SECONDS_MAX);
    int limit = descriptor_limit_raise();
    if (limit < 0) fail("the descriptor limit");
    if (connections > limit - DESCRIPTORS_KEPT) {
        fprintf(stderr, "echoes: %ld connections need more than the %d descriptors that a process may have\n", connections, limit);
        return 1;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    memset(message, 'x', sizeof message);
    int listener = listener_open();
    pid_t server = child();
    if (server == 0) serve(listener);
    close(listener);
    pid_t client = child();
    if (client == 0) crowd(connections, size);
    // The first second is not counted: caches and windows grow.
    int is_whole = pause_until(now_s() + 30, 1) && atomic_load(&shared->running) > 0 && pause_until(now_s() + 1, 0);
    long before = atomic_load(&shared->echoes);
    double started = now_s();
    is_whole = is_whole && pause_until(started + (double)seconds, 0);
    double elapsed = now_s() - started;
    long echoes = atomic_load(&shared->echoes) - before;
    kill(client, SIGKILL);
    kill(server, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) continue;
    if (!is_whole) {
        fprintf(stderr, "echoes: a process ended, or 30 s were not enough to connect\n");
        return 1;
    }
    printf("{\"connections\": %ld, \"bytes\": %ld, \"elapsed_s\": %.3f, \"echoes\": %ld, \"rate_per_s\": %.0f}\n", connections, size,
           elapsed, echoes, (double)echoes / elapsed);
    return 0;
}
