// A WebSocket server whose delays are known, for judging what a crowd reports: it sends each text message back after a
// time from a known distribution, and remembers how long it has really held each. One process with one epoll loop.
//
//     delays [--listen ADDRESS:PORT]        (default 127.0.0.1:9003)
//
// GET /stats       {"count":40000,"held_ms":{"p50":14.2,"p99":100.1,"p999":316.4}}: of the messages sent back since the start
//
// Half of the delays are below 14 ms, 1% above 100 ms and one in a thousand above 316 ms (a Pareto distribution).

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "handshake.h"

enum {
    EVENTS_PER_WAIT = 256,
    BACKLOG = 4096,
    // Of a head, or of messages that are not whole yet.
    RECEIVED_BYTES_MAX = 16384,
    // Of a message: its length is one byte then.
    MESSAGE_BYTES_MAX = 125,
    // Messages that are held, and messages whose times are remembered.
    HELD_MAX = 1 << 20,
    TIMES_MAX = 1 << 22,
    // Different delays. Neighbours differ: the step and this number have no common divisor.
    DELAYS = 2000,
    DELAYS_STEP = 1597,
};

struct connection {
    int descriptor;
    bool is_open;
    size_t length;
    char received[RECEIVED_BYTES_MAX + 1];
};

struct held {
    uint64_t due_ns, came_ns;
    struct connection *connection;
    uint8_t length;
    char message[MESSAGE_BYTES_MAX];
};

static int epoll, timer;
// A heap by the time that each is due.
static struct held *heap;
static size_t held_count;
static double *times_ms;
static size_t times_count;
static uint64_t delays_ns[DELAYS];
static uint64_t number;

__attribute__((noreturn)) static void fail(const char *what) {
    fprintf(stderr, "delays: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// The square root by Newton's method, to need no library of mathematics.
static double root(double value) {
    double guess = value > 1 ? value : 1;
    for (int i = 0; i < 100; i++)
        guess = (guess + value / guess) / 2;
    return guess;
}

static void delays_prepare(void) {
    for (int i = 0; i < DELAYS; i++) {
        double above = 1 - (i * (int64_t)DELAYS_STEP % DELAYS + 0.5) / DELAYS;
        delays_ns[i] = (uint64_t)(10e6 / root(above));
    }
}

static void heap_push(const struct held *held) {
    if (held_count == HELD_MAX) {
        fprintf(stderr, "delays: more than %d messages are held\n", HELD_MAX);
        exit(1);
    }
    size_t at = held_count++;
    while (at > 0 && heap[(at - 1) / 2].due_ns > held->due_ns)
        heap[at] = heap[(at - 1) / 2], at = (at - 1) / 2;
    heap[at] = *held;
}

static void heap_pop(void) {
    struct held last = heap[--held_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < held_count && heap[child + 1].due_ns < heap[child].due_ns)
            child++;
        if (child >= held_count || heap[child].due_ns >= last.due_ns)
            break;
        heap[at] = heap[child], at = child;
    }
    heap[at] = last;
}

static void timer_set(void) {
    struct itimerspec when = {0};
    if (held_count > 0) {
        when.it_value.tv_sec = (time_t)(heap[0].due_ns / 1000000000);
        when.it_value.tv_nsec = (long)(heap[0].due_ns % 1000000000);
    }
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) < 0)
        fail("cannot set a timer");
}

// Sends back what is due. The clock of each ends just before its bytes leave.
static void let_go(void) {
    while (held_count > 0 && heap[0].due_ns <= now_ns()) {
        struct held *held = &heap[0];
        char frame[2 + MESSAGE_BYTES_MAX] = {(char)0x81, (char)held->length};
        memcpy(frame + 2, held->message, held->length);
        double held_ms = (double)(now_ns() - held->came_ns) / 1e6;
        size_t bytes = 2 + (size_t)held->length;
        bool is_open = held->connection->is_open;
        if (is_open && send(held->connection->descriptor, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes) {
            if (times_count == TIMES_MAX)
                fail("more times than are remembered");
            times_ms[times_count++] = held_ms;
        }
        heap_pop();
    }
}

// Records stay: a message that is held may point to one.
static void connection_close(struct connection *connection) {
    connection->is_open = false;
    close(connection->descriptor);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double quantile(size_t thousandths) {
    size_t rank = (thousandths * times_count + 999) / 1000;
    return times_count == 0 ? 0 : times_ms[rank > 0 ? rank - 1 : 0];
}

static void answer_stats(struct connection *connection) {
    char body[160], text[320];
    qsort(times_ms, times_count, sizeof *times_ms, compare);
    snprintf(body, sizeof body, "{\"count\":%zu,\"held_ms\":{\"p50\":%.4f,\"p99\":%.4f,\"p999\":%.4f}}", times_count,
             quantile(500), quantile(990), quantile(999));
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(body), body);
    (void)!send(connection->descriptor, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Takes the frame at the front: bytes that it has; 0 if it is not whole, and -1 if the connection is of no more use.
static ssize_t take_frame(struct connection *connection, const uint8_t *bytes, size_t length, uint64_t came_ns) {
    if (length < 6)
        return 0;
    size_t size = bytes[1] & 0x7f;
    if (!(bytes[1] & 0x80) || size > MESSAGE_BYTES_MAX)
        return -1;
    if (length < 6 + size)
        return 0;
    int opcode = bytes[0] & 0x0f;
    if (opcode == 0x8)
        return -1;
    if (opcode == 0x1) {
        uint64_t delay = delays_ns[number++ % DELAYS];
        struct held held = {
            .due_ns = came_ns + delay, .came_ns = came_ns, .connection = connection, .length = (uint8_t)size};
        for (size_t i = 0; i < size; i++)
            held.message[i] = (char)(bytes[6 + i] ^ bytes[2 + i % 4]);
        heap_push(&held);
    }
    return (ssize_t)(6 + size);
}

static bool take(struct connection *connection, bool *is_upgraded, uint64_t came_ns) {
    size_t at = 0;
    if (!*is_upgraded) {
        connection->received[connection->length] = 0;
        char *end = strstr(connection->received, "\r\n\r\n");
        if (!end)
            return connection->length < RECEIVED_BYTES_MAX;
        if (strncmp(connection->received, "GET /stats ", 11) == 0) {
            answer_stats(connection);
            return false;
        }
        if (!answer_upgrade(connection->descriptor, connection->received))
            return false;
        *is_upgraded = true;
        at = (size_t)(end + 4 - connection->received);
    }
    for (;;) {
        ssize_t bytes =
            take_frame(connection, (const uint8_t *)connection->received + at, connection->length - at, came_ns);
        if (bytes < 0)
            return false;
        if (bytes == 0)
            break;
        at += (size_t)bytes;
    }
    connection->length -= at;
    memmove(connection->received, connection->received + at, connection->length);
    return true;
}

// By descriptor: whether its connection is a WebSocket.
static bool *upgraded;

static void handle_readable(struct connection *connection) {
    size_t room = RECEIVED_BYTES_MAX - connection->length;
    ssize_t length = recv(connection->descriptor, connection->received + connection->length, room, MSG_DONTWAIT);
    uint64_t came_ns = now_ns();
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length > 0)
        connection->length += (size_t)length;
    if (length <= 0 || !take(connection, &upgraded[connection->descriptor], came_ns))
        connection_close(connection);
}

static void handle_listener(int listener, long descriptor_limit) {
    int descriptor;
    while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        int on = 1;
        if (!connection || descriptor >= descriptor_limit)
            fail("no room for a connection");
        *connection = (struct connection){.descriptor = descriptor, .is_open = true};
        upgraded[descriptor] = false;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0)
            connection_close(connection);
    }
}

static int listener_open(const char *text) {
    char host[64];
    unsigned port;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (sscanf(text, "%63[^:]:%u", host, &port) != 2 || port > 65535 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "delays: --listen takes an address and a port, such as 127.0.0.1:9003\n");
        exit(104);
    }
    address.sin_port = htons((uint16_t)port);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    socklen_t size = sizeof address;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, BACKLOG) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        fail("cannot listen");
    fprintf(stderr, "listening on %s:%u\n", host, ntohs(address.sin_port));
    return listener;
}

static void watch(int descriptor, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0)
        fail("cannot watch a descriptor");
}

int main(int count, char **words) {
    const char *address = "127.0.0.1:9003";
    if (count == 3 && strcmp(words[1], "--listen") == 0) {
        address = words[2];
    } else if (count != 1) {
        fprintf(stderr, "delays: the only option is --listen ADDRESS:PORT\n");
        return 104;
    }
    long descriptor_limit = sysconf(_SC_OPEN_MAX);
    heap = malloc(sizeof *heap * HELD_MAX);
    times_ms = malloc(sizeof *times_ms * TIMES_MAX);
    upgraded = calloc((size_t)descriptor_limit, sizeof *upgraded);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!heap || !times_ms || !upgraded || epoll < 0 || timer < 0)
        fail("no room");
    delays_prepare();
    int listener = listener_open(address);
    watch(listener, NULL);
    watch(timer, &timer);
    static struct epoll_event events[EVENTS_PER_WAIT];
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_PER_WAIT, -1);
        for (int i = 0; i < ready; i++) {
            if (!events[i].data.ptr) {
                handle_listener(listener, descriptor_limit);
            } else if (events[i].data.ptr == &timer) {
                uint64_t expired;
                (void)!read(timer, &expired, sizeof expired);
            } else {
                handle_readable(events[i].data.ptr);
            }
        }
        let_go();
        timer_set();
    }
}
