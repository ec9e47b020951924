// The plain baseline: what a competent C programmer writes in an afternoon to push one message to many
// WebSocket connections. N processes, each with its own SO_REUSEPORT listener and epoll loop; one send() per
// connection; no protocol beyond the upgrade. Myriad is compared with it, so it is as fast as this design
// allows. It stores 16 bytes of a connection: its descriptor in a dense list, its index in that list, and a
// pointer that is null after the upgrade.
//
//     push [--listen ADDRESS:PORT] [--control ADDRESS:PORT] [--processes N] [--connections N]
//
// --listen       WebSocket port, any path (default 127.0.0.1:9000)
// --control      POST anything: the body goes to every connection as one text frame. GET /stats: counters
//                (default 127.0.0.1:9001)
// --processes    listeners (default 16)
// --connections  how many must fit (default 100000). RLIMIT_NOFILE bounds each process, so this may start
//                more processes
//
// Sockets have the kernel's default send buffer; a connection whose buffer is full misses that message, and
// the miss is counted. Data from clients is read and discarded, so pings are not answered.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "handshake.h"

enum {
    PROCESSES_DEFAULT = 16,
    CONNECTIONS_DEFAULT = 100000,
    EVENTS_PER_WAIT = 1024,
    BACKLOG = 65535,
    HEAD_BYTES_MAX = 8192,
    MESSAGE_BYTES_MAX = 65536,
    FRAME_HEAD_BYTES_MAX = 4,
};

// A worker's counters, on a cache line of its own, in memory shared with the parent. Only the worker writes them.
struct counters {
    _Alignas(64) volatile uint64_t connections;
    volatile uint64_t accepted;
    volatile uint64_t sent;
    volatile uint64_t dropped;
};

struct worker {
    pid_t pid;
    int channel;
};

static struct counters *counters;
static struct worker workers[PROCESSES_MAX];
static int process_count = PROCESSES_DEFAULT;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", strerror(error));
    exit(1);
}

// ---- a worker ----

// One process's connections. A descriptor indexes `places` and `partial`; `open` is dense, so that a
// broadcast walks memory in order and closing swaps the last one into the hole.
static int *open_descriptors;
static uint32_t open_count;
static uint32_t *places;
static char **partial_heads;
static struct counters *own;
static int epoll;

static const uint32_t NOT_OPEN = UINT32_MAX;

static void close_connection(int descriptor) {
    uint32_t place = places[descriptor];
    if (place != NOT_OPEN) {
        int moved = open_descriptors[--open_count];
        open_descriptors[place] = moved;
        places[moved] = place;
        places[descriptor] = NOT_OPEN;
        own->connections = open_count;
    }
    free(partial_heads[descriptor]);
    partial_heads[descriptor] = NULL;
    close(descriptor);
}

// Bytes of a connection that is not yet upgraded. Most heads arrive whole and are never copied.
static void handle_head(int descriptor, const char *bytes, size_t length) {
    char whole[HEAD_BYTES_MAX + 1];
    char *partial = partial_heads[descriptor];
    size_t before = partial ? strlen(partial) : 0;
    if (before + length > HEAD_BYTES_MAX || memchr(bytes, 0, length)) {
        close_connection(descriptor);
        return;
    }
    if (partial)
        memcpy(whole, partial, before);
    memcpy(whole + before, bytes, length);
    whole[before + length] = 0;
    if (!strstr(whole, "\r\n\r\n")) {
        free(partial);
        partial_heads[descriptor] = strdup(whole);
        return;
    }
    free(partial);
    partial_heads[descriptor] = NULL;
    if (!answer_upgrade(descriptor, whole)) {
        close_connection(descriptor);
        return;
    }
    places[descriptor] = open_count;
    open_descriptors[open_count++] = descriptor;
    own->connections = open_count;
}

static void handle_readable(int descriptor) {
    static char buffer[HEAD_BYTES_MAX];
    ssize_t length = recv(descriptor, buffer, sizeof buffer, MSG_DONTWAIT);
    if (length > 0 && places[descriptor] == NOT_OPEN)
        handle_head(descriptor, buffer, (size_t)length);
    else if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        close_connection(descriptor);
}

static void handle_listener(int listener, int descriptor_limit) {
    for (;;) {
        int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0)
            return;
        if (descriptor >= descriptor_limit) {
            close(descriptor);
            continue;
        }
        own->accepted++;
        places[descriptor] = NOT_OPEN;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0)
            close(descriptor);
    }
}

// Puts an unmasked text frame's head (RFC 6455, 5.2) in front of the payload, which starts at `payload`.
static char *frame_before(char *payload, size_t length) {
    uint8_t *head;
    if (length < 126) {
        head = (uint8_t *)payload - 2;
        head[1] = (uint8_t)length;
    } else {
        head = (uint8_t *)payload - 4;
        head[1] = 126;
        head[2] = (uint8_t)(length >> 8);
        head[3] = (uint8_t)length;
    }
    head[0] = 0x81;
    return (char *)head;
}

static void broadcast(const char *frame, size_t length) {
    uint64_t sent = 0, dropped = 0;
    // Backwards, because closing moves the last connection into the hole.
    for (uint32_t place = open_count; place-- > 0;) {
        ssize_t taken = send(open_descriptors[place], frame, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (taken == (ssize_t)length) {
            sent++;
        } else if (taken < 0 && errno == EAGAIN) {
            dropped++;
        } else {
            // Broken, or sent in part: a whole frame cannot follow.
            dropped++;
            close_connection(open_descriptors[place]);
        }
    }
    own->sent += sent;
    own->dropped += dropped;
}

static void handle_channel(int channel) {
    static char message[FRAME_HEAD_BYTES_MAX + MESSAGE_BYTES_MAX];
    char *payload = message + FRAME_HEAD_BYTES_MAX;
    ssize_t length = recv(channel, payload, MESSAGE_BYTES_MAX - 1, MSG_DONTWAIT);
    if (length == 0)
        exit(0);
    if (length < 0)
        return;
    char *frame = frame_before(payload, (size_t)length);
    broadcast(frame, (size_t)(payload + length - frame));
}

static void work(int listener, int channel, int descriptor_limit) {
    // calloc of this size maps pages that cost nothing until touched. The limit may be a million, even with few
    // connections.
    open_descriptors = calloc((size_t)descriptor_limit, sizeof *open_descriptors);
    places = calloc((size_t)descriptor_limit, sizeof *places);
    partial_heads = calloc((size_t)descriptor_limit, sizeof *partial_heads);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!open_descriptors || !places || !partial_heads || epoll < 0)
        fail("a worker could not start");
    int always[] = {listener, channel};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = always[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, always[i], &event) < 0)
            fail("a worker could not watch its sockets");
    }
    static struct epoll_event events[EVENTS_PER_WAIT];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_PER_WAIT, -1);
        for (int i = 0; i < count; i++) {
            int descriptor = events[i].data.fd;
            if (descriptor == listener)
                handle_listener(listener, descriptor_limit);
            else if (descriptor == channel)
                handle_channel(channel);
            else
                handle_readable(descriptor);
        }
    }
}

// ---- the parent: control port ----

// utime + stime of the workers, in seconds (proc(5), fields 14 and 15 of stat).
static double cpu_seconds(void) {
    unsigned long long ticks = 0;
    for (int i = 0; i < process_count; i++) {
        char path[64], text[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", workers[i].pid);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[length] = 0;
        unsigned long long user = 0, system = 0;
        const char *after_name = strrchr(text, ')');
        if (after_name && sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2)
            ticks += user + system;
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void answer(int client, const char *status, const char *body) {
    char text[512];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                          "Connection: close\r\n\r\n%s",
                          status, strlen(body), body);
    (void)!send(client, text, (size_t)length, MSG_NOSIGNAL);
}

static void answer_stats(int client) {
    uint64_t open = 0, accepted = 0, sent = 0, dropped = 0;
    for (int i = 0; i < process_count; i++) {
        open += counters[i].connections;
        accepted += counters[i].accepted;
        sent += counters[i].sent;
        dropped += counters[i].dropped;
    }
    char body[256];
    snprintf(body, sizeof body,
             "{\"connections\":%llu,\"accepted\":%llu,\"sent\":%llu,\"dropped\":%llu,\"processes\":%d,"
             "\"cpu_seconds\":%.2f}\n",
             (unsigned long long)open, (unsigned long long)accepted, (unsigned long long)sent,
             (unsigned long long)dropped, process_count, cpu_seconds());
    answer(client, "200 OK", body);
}

static void publish(int client, const char *body, size_t length) {
    for (int i = 0; i < process_count; i++) {
        // Blocks while a worker is behind by a full socket buffer of messages.
        if (send(workers[i].channel, body, length, MSG_NOSIGNAL) != (ssize_t)length) {
            answer(client, "500 Internal Server Error", "{\"error\":\"a worker is gone\"}\n");
            return;
        }
    }
    answer(client, "200 OK", "{}\n");
}

// Reads one request and answers it; one request per connection.
static void handle_control(int client) {
    static char request[HEAD_BYTES_MAX + MESSAGE_BYTES_MAX + 1];
    size_t length = 0, body_length = 0;
    char *body = NULL;
    while (!body || length < (size_t)(body - request) + body_length) {
        ssize_t more = recv(client, request + length, sizeof request - 1 - length, 0);
        if (more <= 0)
            return;
        length += (size_t)more;
        request[length] = 0;
        if (body || !(body = strstr(request, "\r\n\r\n")))
            continue;
        body += 4;
        size_t value_length = 0;
        const char *value = header(request, "Content-Length", &value_length);
        body_length = value ? strtoul(value, NULL, 10) : 0;
        if (body_length >= MESSAGE_BYTES_MAX) {
            answer(client, "413 Content Too Large", "{\"error\":\"at most 65535 bytes\"}\n");
            return;
        }
    }
    if (strncmp(request, "GET /stats ", 11) == 0)
        answer_stats(client);
    else if (strncmp(request, "GET ", 4) == 0)
        answer(client, "200 OK", "{}\n");
    else if (strncmp(request, "POST ", 5) == 0 && body_length > 0)
        publish(client, body, body_length);
    else
        answer(client, "400 Bad Request", "{\"error\":\"GET /stats, or POST with a body\"}\n");
}

// ---- start ----

static int listen_on(struct sockaddr_in address, bool shared) {
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (shared ? SOCK_NONBLOCK : 0), 0);
    if (listener < 0)
        fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    // Inherited by accepted sockets.
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (shared)
        setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, BACKLOG) < 0)
        fail("cannot listen on %s:%d", inet_ntoa(address.sin_addr), ntohs(address.sin_port));
    return listener;
}

static struct sockaddr_in parse_address(const char *text) {
    char host[64];
    const char *colon = strrchr(text, ':');
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!colon || (size_t)(colon - text) >= sizeof host) {
        fprintf(stderr, "%s is not ADDRESS:PORT\n", text);
        exit(2);
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "%s is not an IPv4 address\n", host);
        exit(2);
    }
    return address;
}

static volatile sig_atomic_t ending;

static void handle_end(int signal) {
    (void)signal;
    ending = 1;
}

static void start_worker(int index, struct sockaddr_in address, int descriptor_limit, const sigset_t *signals) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        fail("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        sigprocmask(SIG_SETMASK, signals, NULL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        close(pair[0]);
        for (int i = 0; i < index; i++)
            close(workers[i].channel);
        own = &counters[index];
        int listener = listen_on(address, true);
        // The parent waits for this byte: the listener exists.
        if (send(pair[1], "", 1, MSG_NOSIGNAL) != 1)
            exit(1);
        work(listener, pair[1], descriptor_limit);
    }
    close(pair[1]);
    char ready;
    workers[index] = (struct worker){.pid = pid, .channel = pair[0]};
    if (recv(pair[0], &ready, 1, 0) != 1)
        exit(1);
}

int main(int count, char **arguments) {
    struct sockaddr_in address = parse_address("127.0.0.1:9000");
    struct sockaddr_in control_address = parse_address("127.0.0.1:9001");
    long connections = CONNECTIONS_DEFAULT;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        if (strcmp(name, "--listen") == 0)
            address = parse_address(value);
        else if (strcmp(name, "--control") == 0)
            control_address = parse_address(value);
        else if (strcmp(name, "--processes") == 0)
            process_count = atoi(value);
        else if (strcmp(name, "--connections") == 0)
            connections = atol(value);
        else {
            fprintf(stderr, "unknown option %s\n", name);
            return 2;
        }
    }
    if (process_count < 1 || process_count > PROCESSES_MAX || connections < 1) {
        fprintf(stderr, "between 1 and %d processes, at least 1 connection\n", PROCESSES_MAX);
        return 2;
    }
    int descriptor_limit = descriptor_limit_raise();
    if (descriptor_limit < 0)
        fail("the descriptor limit");
    process_count = processes_for(connections, descriptor_limit, process_count);
    if (process_count == 0) {
        fprintf(stderr, "%ld connections need more than %d processes of %d descriptors each\n", connections, PROCESSES_MAX,
                descriptor_limit);
        return 1;
    }
    counters = mmap(NULL, sizeof *counters * (size_t)process_count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counters == MAP_FAILED)
        fail("mmap");
    // Bound once without SO_REUSEPORT: another server of this user would otherwise silently share the port.
    close(listen_on(address, false));

    struct sigaction end = {.sa_handler = handle_end};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    sigset_t before;
    sigprocmask(SIG_SETMASK, NULL, &before);
    for (int i = 0; i < process_count; i++)
        start_worker(i, address, descriptor_limit, &before);
    int control = listen_on(control_address, false);
    fprintf(stderr, "listening on %s:%d with %d processes\n", inet_ntoa(address.sin_addr), ntohs(address.sin_port), process_count);
    while (!ending) {
        int client = accept4(control, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        // A stalled control client must not stop the others.
        struct timeval patience = {.tv_sec = 5};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        handle_control(client);
        close(client);
    }
    for (int i = 0; i < process_count; i++)
        kill(workers[i].pid, SIGTERM);
    while (wait(NULL) > 0) {
    }
    return 0;
}
