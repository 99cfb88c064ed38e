/* What the parts of the load generator share: options, counters, time. */
#ifndef LOADGEN_H
#define LOADGEN_H
#include <stddef.h>
#include <stdint.h>

enum mode { LOGIN, COMMAND, FETCH, IDLE, HTTP };

enum { WATCHED = 64 };

struct options {
    enum mode mode;
    const char *host, *prefix, *domain, *password, *path, *http_host, *cookies;
    int port, tls, connections, users, first_user, message;
    long count, size;
    double seconds, warm_up, patience;
    int watched[WATCHED], watched_count;
};

struct counters {
    long done, errors;
    double bytes, started, ended;
    double own_cpu, watched_cpu[WATCHED];
    char first_error[160];
};

extern struct options options;
extern struct counters counters;

double now(void);
void read_options(int count, char **words);
void latency(double seconds);
void begin_window(void);
void end_window(void);
void report(void);
void die(const char *what);
void name_of_user(long number, char *name, size_t size);
void prepare_requests(void);
const char *request_of(long user, int *length);

/* Counts a failure; the first one is kept for the report. */
void failed(const char *what, const char *detail, size_t length);
#endif
