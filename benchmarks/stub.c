/* A mailbox server and web server that answers at once, for measuring what stands in front of it.
 *
 *   stub ADDRESS IMAP_PORT HTTP_PORT
 *
 * One process, one epoll loop, no disk. IMAP: greeting, CAPABILITY, ID, LOGIN (strings in any form) and
 * AUTHENTICATE PLAIN of anybody, NOOP, FETCH 1 (20 kB) and FETCH 2 (1 MB), LOGOUT. HTTP/1.1: GET with keep-alive.
 * It trusts its callers: it is a measuring device for loopback, not a server.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT = 8192, OUTPUT = 4096, EVENTS = 512, BACKLOG = 4096, SMALL = 20480, LARGE = 1048576 };

enum kind { IMAP_LISTENER, HTTP_LISTENER, IMAP, HTTP };

/* What the next bytes of an IMAP connection are. */
enum expect { COMMAND, LITERAL, SASL };

struct block {
    char *data;
    size_t length;
};

struct connection {
    int fd;
    enum kind kind;
    enum expect expect;
    size_t literal_left;
    char tag[64];
    int waiting_for_room; /* EPOLLOUT is asked for */
    int ending;
    size_t have;
    size_t out_length, out_sent; /* text before the body */
    const struct block *body;
    size_t body_sent;
    size_t tail_length, tail_sent; /* text after the body */
    char out[OUTPUT];
    char tail[128];
    char in[INPUT];
};

static int loop;
static struct block small_message, large_message;
static const char CAPABILITIES[] = "IMAP4rev1 SASL-IR LITERAL+ ID IDLE NAMESPACE UIDPLUS AUTH=PLAIN";
static const char WEB_ANSWER[] = "HTTP/1.1 200 OK\r\nServer: stub\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\r\n"
                                 "stub-web-answer-0123456789012345678901234567890123456789012345\r\n";

static void die(const char *what) {
    perror(what);
    exit(1);
}

static struct block message(int number, size_t size) {
    struct block made;
    char head[64];
    size_t head_length = (size_t)snprintf(head, sizeof head, "* %d FETCH (BODY[] {%zu}\r\n", number, size);
    made.length = head_length + size + 3;
    made.data = malloc(made.length);
    if (made.data == NULL) die("malloc");
    memcpy(made.data, head, head_length);
    for (size_t i = 0; i < size; i++) made.data[head_length + i] = i % 78 == 76 ? '\r' : i % 78 == 77 ? '\n' : 'x';
    memcpy(made.data + head_length + size, ")\r\n", 3);
    return made;
}

static void watch(struct connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(loop, operation, c->fd, &event) < 0) die("epoll_ctl");
}

static void listen_on(const char *address, int port, enum kind kind) {
    struct connection *c = calloc(1, sizeof *c);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1;
    if (c == NULL || inet_pton(AF_INET, address, &name.sin_addr) != 1) die("address");
    c->kind = kind;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(c->fd, (struct sockaddr *)&name, sizeof name) < 0 || listen(c->fd, BACKLOG) < 0) die("listen");
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

static void put(struct connection *c, const char *text) {
    size_t length = strlen(text);
    if (c->out_length + length > OUTPUT) {
        c->ending = 1;
        return;
    }
    memcpy(c->out + c->out_length, text, length);
    c->out_length += length;
}

static void put_tagged(struct connection *c, const char *text) {
    put(c, c->tag);
    put(c, text);
}

static void signed_in(struct connection *c) {
    put(c, c->tag);
    put(c, " OK [CAPABILITY ");
    put(c, CAPABILITIES);
    put(c, "] stub signed in\r\n");
    c->expect = COMMAND;
}

/* The size of a literal that ends this line, or -1. `plus`: the client does not wait for "+". */
static long literal_at_end(const char *line, size_t length, int *plus) {
    if (length < 3 || line[length - 1] != '}') return -1;
    size_t i = length - 2;
    *plus = line[i] == '+';
    if (*plus) i--;
    size_t end = i + 1;
    while (i > 0 && line[i] >= '0' && line[i] <= '9') i--;
    return line[i] == '{' && i + 1 < end ? atol(line + i + 1) : -1;
}

static void login_line(struct connection *c, const char *line, size_t length) {
    int plus = 0;
    long size = literal_at_end(line, length, &plus);
    if (size < 0) {
        signed_in(c);
        return;
    }
    c->literal_left = (size_t)size;
    c->expect = LITERAL;
    if (!plus) put(c, "+ more\r\n");
}

static void fetch(struct connection *c, const char *argument) {
    c->body = *argument == '2' ? &large_message : &small_message;
    c->body_sent = c->tail_sent = 0;
    c->tail_length = (size_t)snprintf(c->tail, sizeof c->tail, "%s OK fetched\r\n", c->tag);
}

static void imap_line(struct connection *c, char *line, size_t length) {
    line[length] = 0;
    if (c->expect == SASL) {
        signed_in(c);
        return;
    }
    if (c->expect == LITERAL) { /* the rest of a LOGIN after a literal */
        login_line(c, line, length);
        return;
    }
    char *space = strchr(line, ' ');
    if (space == NULL || (size_t)(space - line) >= sizeof c->tag) {
        put(c, "* BAD what\r\n");
        return;
    }
    memcpy(c->tag, line, (size_t)(space - line));
    c->tag[space - line] = 0;
    const char *word = space + 1;
    if (strncasecmp(word, "NOOP", 4) == 0) put_tagged(c, " OK nothing done\r\n");
    else if (strncasecmp(word, "FETCH ", 6) == 0) fetch(c, word + 6);
    else if (strncasecmp(word, "LOGIN ", 6) == 0) login_line(c, line, length);
    else if (strncasecmp(word, "AUTHENTICATE PLAIN ", 19) == 0) signed_in(c);
    else if (strncasecmp(word, "AUTHENTICATE PLAIN", 18) == 0) {
        c->expect = SASL;
        put(c, "+ \r\n");
    } else if (strncasecmp(word, "CAPABILITY", 10) == 0) {
        put(c, "* CAPABILITY ");
        put(c, CAPABILITIES);
        put(c, "\r\n");
        put_tagged(c, " OK listed\r\n");
    } else if (strncasecmp(word, "ID ", 3) == 0) {
        put(c, "* ID NIL\r\n");
        put_tagged(c, " OK known\r\n");
    } else if (strncasecmp(word, "LOGOUT", 6) == 0) {
        put(c, "* BYE\r\n");
        put_tagged(c, " OK bye\r\n");
        c->ending = 1;
    } else put_tagged(c, " BAD what\r\n");
}

/* Takes commands from the input while there is nothing left to send; returns how many bytes were used. */
static size_t imap_input(struct connection *c) {
    size_t used = 0;
    while (used < c->have && c->body == NULL && !c->ending) {
        if (c->expect == LITERAL && c->literal_left > 0) {
            size_t some = c->have - used < c->literal_left ? c->have - used : c->literal_left;
            c->literal_left -= some;
            used += some;
            continue;
        }
        char *start = c->in + used;
        char *end = memchr(start, '\n', c->have - used);
        if (end == NULL) break;
        size_t length = (size_t)(end - start);
        used += length + 1;
        if (length > 0 && start[length - 1] == '\r') length--;
        imap_line(c, start, length);
    }
    return used;
}

static size_t http_input(struct connection *c) {
    size_t used = 0;
    for (;;) {
        char *end = memmem(c->in + used, c->have - used, "\r\n\r\n", 4);
        if (end == NULL) return used;
        used = (size_t)(end + 4 - c->in);
        put(c, WEB_ANSWER);
    }
}

/* 1: all of it sent; 0: the socket is full; -1: broken. */
static int send_some(struct connection *c, const char *data, size_t length, size_t *sent) {
    while (*sent < length) {
        ssize_t n = send(c->fd, data + *sent, length - *sent, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        *sent += (size_t)n;
    }
    return 1;
}

static int flush(struct connection *c) {
    int done = send_some(c, c->out, c->out_length, &c->out_sent);
    if (done != 1) return done;
    c->out_length = c->out_sent = 0;
    if (c->body == NULL) return 1;
    done = send_some(c, c->body->data, c->body->length, &c->body_sent);
    if (done != 1) return done;
    done = send_some(c, c->tail, c->tail_length, &c->tail_sent);
    if (done != 1) return done;
    c->body = NULL;
    return 1;
}

static void end(struct connection *c) {
    close(c->fd);
    free(c);
}

/* Answers what can be answered. Returns 0 when the connection is gone. */
static int work(struct connection *c) {
    for (;;) {
        int sent = flush(c);
        if (sent < 0 || (sent == 1 && c->ending)) {
            end(c);
            return 0;
        }
        if (sent == 0) {
            if (!c->waiting_for_room) watch(c, EPOLL_CTL_MOD, EPOLLOUT);
            c->waiting_for_room = 1;
            return 1;
        }
        if (c->waiting_for_room) watch(c, EPOLL_CTL_MOD, EPOLLIN);
        c->waiting_for_room = 0;
        size_t used = c->kind == IMAP ? imap_input(c) : http_input(c);
        memmove(c->in, c->in + used, c->have - used);
        c->have -= used;
        if (c->out_length == 0 && c->body == NULL && !c->ending) return 1;
    }
}

static void receive(struct connection *c) {
    if (c->waiting_for_room) {
        work(c);
        return;
    }
    /* one byte is kept free for the 0 that ends a line */
    ssize_t n = recv(c->fd, c->in + c->have, INPUT - 1 - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        end(c);
        return;
    }
    c->have += (size_t)n;
    work(c);
}

static void accept_all(struct connection *listener) {
    for (int i = 0; i < 64; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        int yes = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        struct connection *c = malloc(sizeof *c);
        if (c == NULL) die("malloc");
        memset(c, 0, offsetof(struct connection, out));
        c->fd = fd;
        c->kind = listener->kind == IMAP_LISTENER ? IMAP : HTTP;
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
        if (c->kind == IMAP) {
            put(c, "* OK [CAPABILITY ");
            put(c, CAPABILITIES);
            put(c, "] stub ready\r\n");
            work(c);
        }
    }
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: stub ADDRESS IMAP_PORT HTTP_PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    loop = epoll_create1(0);
    small_message = message(1, SMALL);
    large_message = message(2, LARGE);
    listen_on(words[1], atoi(words[2]), IMAP_LISTENER);
    listen_on(words[1], atoi(words[3]), HTTP_LISTENER);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->kind == IMAP_LISTENER || c->kind == HTTP_LISTENER) accept_all(c);
            else receive(c);
        }
    }
}
