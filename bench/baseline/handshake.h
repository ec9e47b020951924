// The server's half of a WebSocket handshake, for the plain programs here.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

// ---- SHA-1 and base64, for Sec-WebSocket-Accept (RFC 6455, 4.2.2; FIPS 180-4; RFC 4648) ----

static uint32_t rotate_left(uint32_t value, int bits) {
    return value << bits | value >> (32 - bits);
}

static void sha1_block(uint32_t state[5], const uint8_t block[64]) {
    uint32_t schedule[80];
    for (int t = 0; t < 16; t++) {
        const uint8_t *bytes = block + 4 * t;
        schedule[t] = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    }
    for (int t = 16; t < 80; t++) {
        uint32_t mixed = schedule[t - 3] ^ schedule[t - 8] ^ schedule[t - 14] ^ schedule[t - 16];
        schedule[t] = rotate_left(mixed, 1);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 80; t++) {
        uint32_t mix, constant;
        if (t < 20) {
            mix = (b & c) | (~b & d), constant = 0x5a827999;
        } else if (t < 40) {
            mix = b ^ c ^ d, constant = 0x6ed9eba1;
        } else if (t < 60) {
            mix = (b & c) | (b & d) | (c & d), constant = 0x8f1bbcdc;
        } else {
            mix = b ^ c ^ d, constant = 0xca62c1d6;
        }
        uint32_t next = rotate_left(a, 5) + mix + e + constant + schedule[t];
        e = d, d = c, c = rotate_left(b, 30), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

// SHA-1 of at most 119 bytes: two blocks. A key and its GUID are 60.
static void sha1(const uint8_t *data, size_t length, uint8_t digest[20]) {
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t padded[128] = {0};
    size_t blocks = length < 56 ? 1 : 2;
    memcpy(padded, data, length);
    padded[length] = 0x80;
    uint64_t bits = (uint64_t)length * 8;
    for (int i = 0; i < 8; i++)
        padded[blocks * 64 - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (size_t i = 0; i < blocks; i++)
        sha1_block(state, padded + 64 * i);
    for (int i = 0; i < 20; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64_of_digest(const uint8_t digest[20], char text[29]) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 7; i++) {
        uint32_t last = i < 6 ? digest[3 * i + 2] : 0;
        uint32_t group = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | last;
        for (int j = 0; j < 4; j++)
            text[4 * i + j] = alphabet[group >> (18 - 6 * j) & 63];
    }
    text[27] = '=';
    text[28] = 0;
}

// ---- the handshake ----

// The value of a header field in a complete head, without surrounding blanks; NULL if it is missing.
static const char *header(const char *head, const char *name, size_t *length) {
    size_t name_length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_length) != 0 || line[name_length] != ':')
            continue;
        const char *value = line + name_length + 1;
        value += strspn(value, " \t");
        *length = strcspn(value, "\r\n");
        while (*length > 0 && (value[*length - 1] == ' ' || value[*length - 1] == '\t'))
            (*length)--;
        return value;
    }
    return NULL;
}

// Answers the request with this head. False if it is none to upgrade, or the answer was not taken.
static bool answer_upgrade(int descriptor, const char *head) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    static const char refusal[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    size_t length = 0;
    const char *key = header(head, "Sec-WebSocket-Key", &length);
    if (!key || length != 24) {
        (void)!send(descriptor, refusal, sizeof refusal - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        return false;
    }
    uint8_t keyed[24 + sizeof guid - 1], digest[20];
    memcpy(keyed, key, 24);
    memcpy(keyed + 24, guid, sizeof guid - 1);
    sha1(keyed, sizeof keyed, digest);
    char accept[29], answer[160];
    base64_of_digest(digest, accept);
    int bytes = snprintf(answer, sizeof answer,
                         "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         "Sec-WebSocket-Accept: %s\r\n\r\n",
                         accept);
    return send(descriptor, answer, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == bytes;
}
