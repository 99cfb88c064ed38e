/* The load generator's options, clock, latencies and report. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Latencies in a log-linear histogram of microseconds: 64 steps for each doubling, so within 1.6 %. */
enum { STEPS = 64, DOUBLINGS = 32 };

struct options options = {.host = "127.0.0.1", .prefix = "user", .domain = "example.com", .password = "secret",
                          .path = "/", .http_host = "localhost", .connections = 1, .users = 1, .message = 1,
                          .seconds = 1, .patience = 10};
struct counters counters;
static long histogram[STEPS * DOUBLINGS];

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void die(const char *what) {
    perror(what);
    exit(1);
}

void failed(const char *what, const char *detail, size_t length) {
    if (counters.errors++ > 0) return;
    size_t n = (size_t)snprintf(counters.first_error, sizeof counters.first_error, "%s: ", what);
    for (size_t i = 0; i < length && n + 1 < sizeof counters.first_error; i++)
        counters.first_error[n++] = detail[i] < ' ' || detail[i] == '"' || detail[i] == '\\' ? '?' : detail[i];
    counters.first_error[n] = 0;
}

void latency(double seconds) {
    uint64_t us = seconds > 0 ? (uint64_t)(seconds * 1e6) : 0;
    int shift = 0;
    while ((us >> shift) >= 2 * STEPS) shift++;
    size_t at = us < STEPS ? (size_t)us : (size_t)((shift + 1) * STEPS) + (size_t)(us >> shift) - STEPS;
    histogram[at < STEPS * DOUBLINGS ? at : STEPS * DOUBLINGS - 1]++;
}

static double percentile(double part) {
    long wanted = (long)(part * (double)counters.done), seen = 0;
    for (int at = 0; at < STEPS * DOUBLINGS; at++) {
        seen += histogram[at];
        if (histogram[at] == 0 || seen <= wanted) continue;
        if (at < STEPS) return at / 1e3;
        return (double)((uint64_t)(at % STEPS + STEPS) << (at / STEPS - 1)) / 1e3;
    }
    return 0;
}

static double own_cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Processor seconds of another process with all its threads, to the clock tick. */
static double cpu_of(int pid) {
    char path[64], text[1024];
    long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *name_end = strrchr(text, ')');
    if (name_end == NULL) return 0;
    if (sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &kernel) != 2) return 0;
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

void begin_window(void) {
    memset(&counters, 0, sizeof counters);
    memset(histogram, 0, sizeof histogram);
    for (int i = 0; i < options.watched_count; i++) counters.watched_cpu[i] = cpu_of(options.watched[i]);
    counters.own_cpu = own_cpu();
    counters.started = now();
}

void end_window(void) {
    counters.ended = now();
    counters.own_cpu = own_cpu() - counters.own_cpu;
    for (int i = 0; i < options.watched_count; i++)
        counters.watched_cpu[i] = cpu_of(options.watched[i]) - counters.watched_cpu[i];
}

void report(void) {
    printf("{\"count\": %ld, \"errors\": %ld, \"seconds\": %.6f, \"bytes\": %.0f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
           "\"own_cpu\": %.4f, \"cpu\": {",
           counters.done, counters.errors, counters.ended - counters.started, counters.bytes, percentile(0.5),
           percentile(0.99), counters.own_cpu);
    for (int i = 0; i < options.watched_count; i++)
        printf("%s\"%d\": %.3f", i ? ", " : "", options.watched[i], counters.watched_cpu[i]);
    printf("}, \"first_error\": \"%s\"}\n", counters.first_error);
    fflush(stdout);
}

static void usage(void) {
    fprintf(stderr,
            "usage: loadgen MODE [--name value ...]\n"
            "MODE: login | command | fetch | idle | http\n"
            "  --host IP --port N --tls 0|1 --connections N --seconds S --warm-up S --count N (instead of seconds)\n"
            "  --prefix P --domain D --users N --first-user N --password W   names are P0000@D, P0001@D ...\n"
            "  --message N --size BYTES (fetch)   --path P --http-host H (http)\n"
            "  --cookies FILE (http: a Cookie field for each user, one a line, instead of Basic credentials)\n"
            "  --patience S (without any answer)  --watch PID (repeatable: its processor time is reported)\n"
            "idle: prints \"ready\" when all are signed in, waits for the end of its input, then asks each once more\n");
    exit(2);
}

static void set_option(const char *name, const char *value) {
    const struct { const char *name; const char **text; int *number; long *big; double *real; } known[] = {
        {"--host", &options.host, 0, 0, 0}, {"--port", 0, &options.port, 0, 0}, {"--tls", 0, &options.tls, 0, 0},
        {"--connections", 0, &options.connections, 0, 0}, {"--seconds", 0, 0, 0, &options.seconds},
        {"--warm-up", 0, 0, 0, &options.warm_up}, {"--count", 0, 0, &options.count, 0},
        {"--prefix", &options.prefix, 0, 0, 0}, {"--domain", &options.domain, 0, 0, 0},
        {"--users", 0, &options.users, 0, 0}, {"--first-user", 0, &options.first_user, 0, 0},
        {"--password", &options.password, 0, 0, 0}, {"--message", 0, &options.message, 0, 0},
        {"--size", 0, 0, &options.size, 0}, {"--path", &options.path, 0, 0, 0},
        {"--http-host", &options.http_host, 0, 0, 0}, {"--cookies", &options.cookies, 0, 0, 0}, {"--patience", 0, 0, 0, &options.patience}};
    if (strcmp(name, "--watch") == 0 && options.watched_count < WATCHED) {
        options.watched[options.watched_count++] = atoi(value);
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        if (known[i].text) *known[i].text = value;
        if (known[i].number) *known[i].number = atoi(value);
        if (known[i].big) *known[i].big = atol(value);
        if (known[i].real) *known[i].real = atof(value);
        return;
    }
    usage();
}

void read_options(int count, char **words) {
    static const char *const modes[] = {"login", "command", "fetch", "idle", "http"};
    int mode = -1;
    for (int i = 0; count > 1 && i < 5; i++)
        if (strcmp(words[1], modes[i]) == 0) mode = i;
    if (mode < 0 || count % 2 != 0) usage();
    options.mode = (enum mode)mode;
    for (int i = 2; i + 1 < count; i += 2) set_option(words[i], words[i + 1]);
    if (options.port == 0 || options.connections < 1 || options.users < 1) usage();
}
