/* Load for mail and web front ends: many connections from one process, every answer checked.
 *
 * login    connect, (TLS, a full handshake each time), greeting, LOGIN, tagged OK, close; again
 * command  signed-in sessions that each send NOOP and wait for the tagged OK; again
 * fetch    signed-in sessions that each FETCH one message and count the bytes of its literal; again
 * idle     signed-in sessions that stay; see the usage text
 * http     kept-alive connections with Basic credentials or cookies, another user for each request
 *
 * An operation counts when its answer has the right tag, says OK and has the right number of bytes. Anything else,
 * a closed connection included, is an error, and one error makes a measurement worthless (run.py throws it away).
 */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE = 2048, BUFFER = 262144, EVENTS = 512, RAMP = 64, ENOUGH_ERRORS = 20 };

enum phase { CONNECTING, HANDSHAKE, GREETING, SIGNING_IN, READY, ASKED };

struct connection {
    int fd;
    SSL *tls;
    enum phase phase;
    unsigned tag;
    int tag_length;
    char tag_text[16];
    double asked_at;
    size_t skip; /* bytes of a literal or a body still to come */
    long body;   /* bytes of literals in this answer */
    enum { STATUS, HEADERS, BODY } part; /* http: what comes next of this answer */
    size_t have;
    char line[LINE];
};

static int loop, open_count, started_count;
static long next_user, finished_total;
static double last_progress;
static int stopping, asking_once;
static SSL_CTX *tls_context;
static char buffer[BUFFER];

static void start(struct connection *c);
static void ask(struct connection *c);

static void drop(struct connection *c) {
    if (c->tls) {
        SSL_shutdown(c->tls);
        SSL_free(c->tls);
        c->tls = NULL;
    }
    close(c->fd);
    c->fd = -1;
    open_count--;
}

static void broken(struct connection *c, const char *what, const char *detail, size_t length) {
    failed(what, detail, length);
    drop(c);
    if (!stopping) start(c);
}

static int transmit(struct connection *c, const char *data, int length) {
    int n = c->tls ? SSL_write(c->tls, data, length) : (int)send(c->fd, data, (size_t)length, MSG_NOSIGNAL);
    if (n == length) return 1;
    broken(c, "short write", "", 0);
    return 0;
}

static int command(struct connection *c, const char *format, const char *argument, const char *second) {
    char text[LINE], words[LINE];
    c->tag_length = snprintf(c->tag_text, sizeof c->tag_text, "a%u ", ++c->tag);
    snprintf(words, sizeof words, format, argument, second);
    int length = snprintf(text, sizeof text, "%s%s\r\n", c->tag_text, words);
    c->body = 0;
    return transmit(c, text, length);
}

static void finished(struct connection *c) {
    double time = now();
    last_progress = time;
    counters.done++;
    counters.bytes += (double)c->body;
    latency(time - c->asked_at);
    finished_total++;
}

static void ask(struct connection *c) {
    if (stopping || options.mode == IDLE) return;
    c->asked_at = now();
    c->phase = ASKED;
    if (options.mode == HTTP) {
        long user = next_user++ % options.users;
        c->part = STATUS;
        int length;
        const char *request = request_of(user, &length);
        transmit(c, request, length);
    } else if (options.mode == FETCH) {
        char number[12];
        snprintf(number, sizeof number, "%d", options.message);
        command(c, "FETCH %s BODY[]%s", number, "");
    } else command(c, "NOOP%s%s", "", "");
}

/* The connection can be used for something: the next step after connect or handshake. */
static void greet(struct connection *c) {
    c->phase = GREETING;
    if (options.mode != HTTP) return;
    last_progress = now();
    ask(c);
}

static void tagged(struct connection *c, const char *line, size_t length) {
    if (length < (size_t)c->tag_length + 2 || memcmp(line + c->tag_length, "OK", 2) != 0) {
        broken(c, "not OK", line, length);
        return;
    }
    if (c->phase == SIGNING_IN && options.mode == LOGIN) {
        /* the text of the stub itself: the session is really at the mailbox server */
        if (memmem(line, length, "stub signed in", 14) == NULL) {
            broken(c, "not the mailbox server's answer", line, length);
            return;
        }
        finished(c);
        drop(c);
        if (!stopping) start(c);
        return;
    }
    if (c->phase == SIGNING_IN) {
        c->phase = READY;
        last_progress = now();
        started_count++;
        ask(c);
        return;
    }
    if (options.mode == FETCH && c->body != options.size) {
        broken(c, "wrong number of bytes", line, length);
        return;
    }
    c->phase = READY;
    finished(c);
    if (!asking_once) ask(c);
}

static void imap_line(struct connection *c, const char *line, size_t length) {
    if (c->phase == GREETING) {
        char name[128];
        if (length < 4 || memcmp(line, "* OK", 4) != 0) {
            broken(c, "greeting", line, length);
            return;
        }
        name_of_user(next_user++, name, sizeof name);
        c->phase = SIGNING_IN;
        command(c, "LOGIN %s %s", name, options.password);
    } else if (length >= 2 && memcmp(line, "* ", 2) == 0) {
        if (length > 3 && line[length - 3] == '}') { /* ends in {n} CR LF */
            const char *brace = memrchr(line, '{', length);
            c->skip = brace ? (size_t)atol(brace + 1) : 0;
            c->body += (long)c->skip;
        }
    } else if (length > (size_t)c->tag_length && memcmp(line, c->tag_text, (size_t)c->tag_length) == 0) {
        if (c->phase == SIGNING_IN || c->phase == ASKED) tagged(c, line, length);
        else broken(c, "answer to no question", line, length);
    } else if (!(length == 3 && line[0] == ')' && c->phase == ASKED)) broken(c, "unexpected line", line, length);
}

static void http_line(struct connection *c, const char *line, size_t length) {
    if (c->phase != ASKED) {
        broken(c, "answer to no question", line, length);
    } else if (c->part == STATUS) {
        if (length < 12 || memcmp(line, "HTTP/1.1 200", 12) != 0) broken(c, "status", line, length);
        c->part = HEADERS;
        c->body = -1;
    } else if (length > 15 && strncasecmp(line, "content-length:", 15) == 0) {
        c->body = atol(line + 15);
    } else if (length == 2) {
        if (c->body < 0) broken(c, "no length", line, length);
        else c->skip = (size_t)c->body;
        c->part = BODY;
    }
}

/* Feeds received bytes; stops when the connection was replaced. */
static void take(struct connection *c, const char *data, size_t length) {
    int fd = c->fd;
    while (length > 0 && c->fd == fd) {
        if (c->skip > 0) {
            size_t some = length < c->skip ? length : c->skip;
            c->skip -= some;
            data += some;
            length -= some;
        } else {
            const char *end = memchr(data, '\n', length);
            size_t some = end ? (size_t)(end + 1 - data) : length;
            const char *line = data;
            size_t line_length = some;
            data += some;
            length -= some;
            if (c->have > 0 || end == NULL) {
                if (c->have + some > LINE) {
                    broken(c, "long line", c->line, 80);
                    return;
                }
                memcpy(c->line + c->have, line, some);
                c->have += some;
                if (end == NULL) return;
                line = c->line;
                line_length = c->have;
                c->have = 0;
            }
            if (options.mode == HTTP) http_line(c, line, line_length);
            else imap_line(c, line, line_length);
        }
        if (options.mode == HTTP && c->fd == fd && c->phase == ASKED && c->part == BODY && c->skip == 0) {
            c->phase = READY;
            finished(c);
            if (length > 0) broken(c, "answer to no question", data, length);
            else ask(c);
            return;
        }
    }
}

static void read_clear(struct connection *c) {
    ssize_t n = recv(c->fd, buffer, BUFFER, 0);
    if (n > 0) take(c, buffer, (size_t)n);
    else if (n == 0 || errno != EAGAIN) broken(c, "closed", n < 0 ? strerror(errno) : "", n < 0 ? 20 : 0);
}

static void read_tls(struct connection *c) {
    int fd = c->fd;
    do {
        ERR_clear_error();
        int n = SSL_read(c->tls, buffer, BUFFER);
        if (n <= 0) {
            if (SSL_get_error(c->tls, n) != SSL_ERROR_WANT_READ) broken(c, "closed", "", 0);
            return;
        }
        take(c, buffer, (size_t)n);
    } while (c->fd == fd && c->tls && SSL_has_pending(c->tls));
}

static void shake_hands(struct connection *c) {
    ERR_clear_error();
    int n = SSL_do_handshake(c->tls);
    if (n == 1) {
        if (SSL_version(c->tls) != TLS1_3_VERSION) broken(c, "not TLS 1.3", "", 0);
        else greet(c);
    } else if (SSL_get_error(c->tls, n) != SSL_ERROR_WANT_READ) broken(c, "handshake", "", 0);
}

static void connected(struct connection *c) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        broken(c, "connect", strerror(error), strlen(strerror(error)));
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(loop, EPOLL_CTL_MOD, c->fd, &event);
    if (!tls_context) {
        greet(c);
        return;
    }
    c->tls = SSL_new(tls_context);
    SSL_set_fd(c->tls, c->fd);
    SSL_set_connect_state(c->tls);
    c->phase = HANDSHAKE;
    shake_hands(c);
}

static void start(struct connection *c) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    int yes = 1;
    if (inet_pton(AF_INET, options.host, &name.sin_addr) != 1) die("address");
    memset(c, 0, offsetof(struct connection, line));
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) die("socket");
    open_count++;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    c->asked_at = now();
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    if (connect(c->fd, (struct sockaddr *)&name, sizeof name) < 0 && errno != EINPROGRESS) die("connect");
    if (epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &event) < 0) die("epoll_ctl");
}

static void handle(struct connection *c, uint32_t events) {
    if (c->fd < 0) return;
    if (c->phase == CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) connected(c);
    } else if (c->phase == HANDSHAKE) shake_hands(c);
    else if (c->tls) read_tls(c);
    else read_clear(c);
}

static void turn(int wait_ms) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(loop, events, EVENTS, wait_ms);
    for (int i = 0; i < n; i++) handle(events[i].data.ptr, events[i].events);
    if (counters.errors > ENOUGH_ERRORS) stopping = 1; /* the measurement is spoiled anyway */
    if (now() - last_progress > options.patience) {
        failed("no answer for too long", "", 0);
        stopping = 1;
    }
}

static int trust_anybody(X509_STORE_CTX *store, void *unused) {
    (void)store, (void)unused; /* the chain costs the client time and is not what is measured */
    return 1;
}

static void prepare_tls(void) {
    tls_context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(tls_context, TLS1_3_VERSION);
    SSL_CTX_set_session_cache_mode(tls_context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_cert_verify_callback(tls_context, trust_anybody, NULL);
    if (options.mode == IDLE) {
        SSL_CTX_set_mode(tls_context, SSL_MODE_RELEASE_BUFFERS);
    } else { /* several records for one system call */
        SSL_CTX_set_read_ahead(tls_context, 1);
        SSL_CTX_set_default_read_buffer_len(tls_context, 65536);
    }
}

/* Opens the connections, a few at a time for the modes that stay signed in. */
static void open_all(struct connection *all) {
    int asked_for = 0;
    while (!stopping && asked_for < options.connections) {
        int under_way = options.mode == LOGIN || options.mode == HTTP ? 0 : asked_for - started_count;
        while (asked_for < options.connections && under_way++ < RAMP) start(&all[asked_for++]);
        turn(100);
    }
    while (!stopping && options.mode != LOGIN && options.mode != HTTP && started_count < options.connections) turn(100);
}

static void stay_idle(struct connection *all) {
    printf("ready\n");
    fflush(stdout);
    while (read(0, buffer, BUFFER) > 0) continue;
    last_progress = now();
    begin_window();
    options.mode = COMMAND;
    asking_once = 1;
    for (int i = 0; i < options.connections && !stopping; i++) {
        ask(&all[i]);
        while (!stopping && counters.done + counters.errors <= i) turn(1000);
    }
}

int main(int count, char **words) {
    read_options(count, words);
    signal(SIGPIPE, SIG_IGN);
    loop = epoll_create1(0);
    if (options.tls) prepare_tls();
    if (options.mode == HTTP) prepare_requests();
    struct connection *all = calloc((size_t)options.connections, sizeof *all);
    if (all == NULL) die("calloc");
    last_progress = now();
    begin_window();
    open_all(all);
    if (options.mode == IDLE) {
        if (!stopping) stay_idle(all);
    } else if (options.count > 0) {
        while (!stopping && finished_total + counters.errors < options.count) turn(100);
    } else {
        for (double until = now() + options.warm_up; !stopping && now() < until;) turn(10);
        if (counters.errors == 0) begin_window();
        for (double until = now() + options.seconds; !stopping && now() < until;) turn(10);
    }
    stopping = 1;
    end_window();
    report();
    return counters.errors ? 1 : 0;
}
