/* The load generator's users: their names, and the HTTP request of each, made before the clock runs. */
#include "loadgen.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST = 6144 };

static char (*requests)[REQUEST];
static int *request_lengths;

void name_of_user(long number, char *name, size_t size) {
    snprintf(name, size, "%s%04ld@%s", options.prefix, options.first_user + number % options.users, options.domain);
}

/* The line that says who the user is: a cookie of the file, or Basic credentials. */
static void user_line(int user, FILE *cookies, char *line, size_t size) {
    if (cookies) {
        char cookie[REQUEST];
        if (fgets(cookie, sizeof cookie, cookies) == NULL) die("fewer cookies than users");
        cookie[strcspn(cookie, "\n")] = 0;
        snprintf(line, size, "Cookie: %s", cookie);
    } else {
        char name[128], pair[256];
        unsigned char encoded[400];
        name_of_user(user, name, sizeof name);
        int length = snprintf(pair, sizeof pair, "%s:%s", name, options.password);
        EVP_EncodeBlock(encoded, (unsigned char *)pair, length);
        snprintf(line, size, "Authorization: Basic %s", encoded);
    }
}

void prepare_requests(void) {
    FILE *cookies = options.cookies ? fopen(options.cookies, "r") : NULL;
    if (options.cookies && cookies == NULL) die(options.cookies);
    requests = calloc((size_t)options.users, sizeof *requests);
    request_lengths = calloc((size_t)options.users, sizeof *request_lengths);
    for (int i = 0; i < options.users; i++) {
        char line[REQUEST + 32];
        user_line(i, cookies, line, sizeof line);
        request_lengths[i] = snprintf(requests[i], REQUEST,
                                      "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\nUser-Agent: "
                                      "loadgen\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n",
                                      options.path, options.http_host, line);
        if (request_lengths[i] >= REQUEST) die("a request is too long");
    }
    if (cookies) fclose(cookies);
}

const char *request_of(long user, int *length) {
    *length = request_lengths[user];
    return requests[user];
}
