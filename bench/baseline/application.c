// An application that says who connects, for measuring how fast a server asks one: it answers each POST at once with
// a user of its own number, and costs as little of the machine as it can. One process with one epoll loop, which
// keeps its connections and sends an answer in the turn in which its request is whole.
//
//     application [--listen ADDRESS:PORT]        (default 127.0.0.1:9002)
//
// POST /connect    a body that names a client: {"result":{"user":"u17"}}. Another body gets 400
// GET /stats       {"calls":17,"connections":1}: calls answered with a user, connections accepted

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS_PER_WAIT = 256,
    BACKLOG = 4096,
    // Of a request: what a connect command may hold fits many times.
    REQUEST_BYTES_MAX = 65536,
    ANSWER_BYTES_MAX = 256,
};

// A connection, and what it has sent of a request that is not whole yet.
struct connection {
    int descriptor;
    size_t length;
    char received[REQUEST_BYTES_MAX + 1];
};

static int epoll;
static uint64_t calls, connections;

__attribute__((noreturn)) static void fail(const char *what) {
    fprintf(stderr, "application: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void connection_close(struct connection *connection) {
    close(connection->descriptor);
    free(connection);
}

// Bytes of the body; -1 if the head does not say.
static long body_length(const char *head, const char *head_end) {
    static const char name[] = "\r\ncontent-length:";
    for (const char *line = head; line && line < head_end; line = strstr(line + 1, "\r\n"))
        if (strncasecmp(line, name, sizeof name - 1) == 0)
            return strtol(line + sizeof name - 1, NULL, 10);
    return -1;
}

static bool answer(struct connection *connection, const char *status, const char *body) {
    char text[ANSWER_BYTES_MAX];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
                          strlen(body), body);
    return send(connection->descriptor, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) == length;
}

static bool handle_request(struct connection *connection, const char *body) {
    char text[ANSWER_BYTES_MAX / 2];
    if (strncmp(connection->received, "GET /stats ", 11) == 0) {
        snprintf(text, sizeof text, "{\"calls\":%lu,\"connections\":%lu}", calls, connections);
        return answer(connection, "200 OK", text);
    }
    if (strncmp(connection->received, "POST /connect ", 14) != 0 || !strstr(body, "\"client\":\""))
        return answer(connection, "400 Bad Request", "{}");
    snprintf(text, sizeof text, "{\"result\":{\"user\":\"u%lu\"}}", ++calls);
    return answer(connection, "200 OK", text);
}

// Answers the requests that are whole. False if the connection is of no more use.
static bool handle_requests(struct connection *connection) {
    for (;;) {
        connection->received[connection->length] = 0;
        char *head_end = strstr(connection->received, "\r\n\r\n");
        if (!head_end)
            return connection->length < REQUEST_BYTES_MAX;
        bool is_get = strncmp(connection->received, "GET ", 4) == 0;
        long body = is_get ? 0 : body_length(connection->received, head_end);
        size_t head = (size_t)(head_end + 4 - connection->received);
        if (body < 0 || (size_t)body > REQUEST_BYTES_MAX - head)
            return false;
        size_t whole = head + (size_t)body;
        if (connection->length < whole)
            return true;
        char next = connection->received[whole];
        connection->received[whole] = 0;
        bool is_open = handle_request(connection, connection->received + head);
        connection->received[whole] = next;
        connection->length -= whole;
        memmove(connection->received, connection->received + whole, connection->length);
        if (!is_open)
            return false;
    }
}

static void handle_readable(struct connection *connection) {
    size_t room = REQUEST_BYTES_MAX - connection->length;
    ssize_t length = recv(connection->descriptor, connection->received + connection->length, room, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length > 0)
        connection->length += (size_t)length;
    if (length <= 0 || !handle_requests(connection))
        connection_close(connection);
}

static void handle_listener(int listener) {
    int descriptor;
    while ((descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = malloc(sizeof *connection);
        int on = 1;
        if (!connection)
            fail("no memory for a connection");
        connection->descriptor = descriptor;
        connection->length = 0;
        connections++;
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
        fprintf(stderr, "application: --listen takes an address and a port, such as 127.0.0.1:9002\n");
        exit(104);
    }
    address.sin_port = htons((uint16_t)port);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, BACKLOG) < 0)
        fail("cannot listen");
    return listener;
}

int main(int count, char **words) {
    const char *address = "127.0.0.1:9002";
    if (count == 3 && strcmp(words[1], "--listen") == 0) {
        address = words[2];
    } else if (count != 1) {
        fprintf(stderr, "application: the only option is --listen ADDRESS:PORT\n");
        return 104;
    }
    int listener = listener_open(address);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0)
        fail("cannot watch the listener");
    fprintf(stderr, "listening on %s\n", address);
    static struct epoll_event events[EVENTS_PER_WAIT];
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_PER_WAIT, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr)
                handle_readable(events[i].data.ptr);
            else
                handle_listener(listener);
        }
    }
}
