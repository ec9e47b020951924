// How many small messages a second come back over plain TCP on this machine, with both ends here. One process sends back what it
// reads, and one sends as many messages on a connection as have come back. Both wait with epoll and do nothing else. Compare the
// rate of a WebSocket server and its crowd with this figure of the same minute: machines differ, and a shared machine differs from
// minute to minute.
//
// With a depth of 1, a connection has one message on its way, and each is read and sent alone. With more, several share a read and a
// send.
//
//     echoes [--connections N] [--depth N] [--bytes N] [--seconds N]        prints one JSON object

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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#define PROGRAM "echoes"
#include "plain.h"

enum {
    CONNECTIONS_DEFAULT = 500,
    // An address has some 28,000 ports, and both processes have one descriptor for each connection.
    CONNECTIONS_MAX = 28000,
    // Beside those of the connections, a process may have inherited some.
    DESCRIPTORS_MAX = CONNECTIONS_MAX + 1000,
    BYTES_DEFAULT = 64,
    DEPTH_DEFAULT = 1,
    // Of the messages that are on their way on a connection: a socket buffer holds more, so a send takes all of them.
    BYTES_MAX = 65536,
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
static char messages[BYTES_MAX];
// Of the crowd.
static int descriptors[CONNECTIONS_MAX];
// By descriptor: the bytes of a message that has not come back whole.
static long back[DESCRIPTORS_MAX];

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

static void crowd(long connections, long size, long depth) {
    struct epoll_event events[EVENTS_PER_WAIT];
    char bytes[BYTES_MAX];
    int set = set_of();
    for (long i = 0; i < connections; i++) {
        int descriptor = descriptors[i] = connected_to_target();
        if (descriptor >= DESCRIPTORS_MAX) {
            fprintf(stderr, "echoes: descriptor %d is beyond the array of %d\n", descriptor, DESCRIPTORS_MAX);
            exit(1);
        }
        watch(set, descriptor);
    }
    for (long i = 0; i < connections; i++) send_whole(descriptors[i], messages, depth * size);
    for (;;) {
        int count = epoll_wait(set, events, EVENTS_PER_WAIT, -1);
        long echoes = 0;
        for (int i = 0; i < count; i++) {
            int descriptor = events[i].data.fd;
            long came = recv(descriptor, bytes, sizeof bytes, MSG_DONTWAIT);
            if (came <= 0) fail("recv");
            long whole = (back[descriptor] + came) / size;
            back[descriptor] = (back[descriptor] + came) % size;
            if (whole > 0) send_whole(descriptor, messages, whole * size);
            echoes += whole;
        }
        atomic_fetch_add_explicit(&shared->echoes, echoes, memory_order_relaxed);
        if (atomic_load_explicit(&shared->running, memory_order_relaxed) == 0) atomic_store(&shared->running, connections);
    }
}

struct option {
    const char *name;
    long value, largest;
};

static void read_options(int count, char **words, struct option *options, int known) {
    for (int i = 1; i < count; i += 2) {
        struct option *found = NULL;
        for (int j = 0; j < known; j++) {
            if (strcmp(words[i], options[j].name) == 0) found = &options[j];
        }
        if (found == NULL) {
            fprintf(stderr, "echoes: there is no option %s\n", words[i]);
            exit(104);
        }
        char *end = "";
        found->value = i + 1 < count ? strtol(words[i + 1], &end, 10) : 0;
        if (*end != '\0' || found->value < 1 || found->value > found->largest) {
            fprintf(stderr, "echoes: %s takes a number from 1 to %ld\n", found->name, found->largest);
            exit(104);
        }
    }
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
    struct option options[] = {
        {"--connections", CONNECTIONS_DEFAULT, CONNECTIONS_MAX},
        {"--depth", DEPTH_DEFAULT, BYTES_MAX},
        {"--bytes", BYTES_DEFAULT, BYTES_MAX},
        {"--seconds", SECONDS_DEFAULT, SECONDS_MAX},
    };
    read_options(count, words, options, sizeof options / sizeof *options);
    long connections = options[0].value, depth = options[1].value, size = options[2].value, seconds = options[3].value;
    if (depth * size > BYTES_MAX) {
        fprintf(stderr, "echoes: --depth times --bytes is %ld, and %d at most\n", depth * size, BYTES_MAX);
        return 104;
    }
    int limit = descriptor_limit_raise();
    if (limit < 0) fail("the descriptor limit");
    if (connections > limit - DESCRIPTORS_KEPT) {
        fprintf(stderr, "echoes: %ld connections need more than the %d descriptors that a process may have\n", connections, limit);
        return 1;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    memset(messages, 'x', sizeof messages);
    int listener = listener_open();
    pid_t server = child();
    if (server == 0) serve(listener);
    close(listener);
    pid_t client = child();
    if (client == 0) crowd(connections, size, depth);
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
    printf("{\"connections\": %ld, \"depth\": %ld, \"bytes\": %ld, \"elapsed_s\": %.3f, \"echoes\": %ld, \"rate_per_s\": %.0f}\n",
           connections, depth, size, elapsed, echoes, (double)echoes / elapsed);
    return 0;
}
