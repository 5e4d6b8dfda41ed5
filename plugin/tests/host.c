/*
 * A stand-in for Slurm's programs: defines the spank_* functions and the loggers, loads the plugin the way Slurm does,
 * calls its hooks in the order of one context, forks for each task, and writes what happened to a transcript.
 *
 * Nothing is written to standard output or standard error: whatever appears there came from the plugin.
 *
 * usage: host PLUGIN TRANSCRIPT KEY=VALUE...
 *   context=local|allocator|slurmd|remote|script   default remote
 *   api=N          slurm_api_version() >> 16, default 38 (22.05)
 *   oldcodes=1     ESPANK codes as they were before 22.05 (1 to 11)
 *   arg=TEXT       one plugstack.conf argument; may be repeated
 *   option=TEXT    what the user gave to --gpuward; may be repeated
 *   env=NAME=TEXT  a variable of the step; may be repeated
 *   job=N restart=N|none step=N rank=N tasks=N uid=N rounds=N
 *   thread=1       a second thread allocates and reads the environment all the time
 *   own=NAME=TEXT  a variable of this process, put there before the plugin is loaded
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

#define MAX 64

static FILE *out;
static int quiet;
static enum spank_context context = S_CTX_REMOTE;
static long api = 38;
static int old_codes, in_task, have_restart = 1;
static uint32_t job = 7, restart_count, step, rank_of_task;
static struct spank_option *option;
static char *names[MAX], *values[MAX];

static void say(const char *format, ...)
{
	va_list ap;

	if (quiet)
		return;
	va_start(ap, format);
	vfprintf(out, format, ap);
	va_end(ap);
	fputc('\n', out);
	fflush(out);
}

static spank_err_t code(spank_err_t modern)
{
	return (old_codes && modern) ? modern - 2999 : modern;
}

static int slot_of(const char *name)
{
	for (int i = 0; i < MAX; i++)
		if (names[i] && !strcmp(names[i], name))
			return i;
	return -1;
}

static void put(const char *name, const char *value)
{
	int i = slot_of(name);

	for (int free_slot = 0; i < 0 && free_slot < MAX; free_slot++)
		if (!names[free_slot])
			i = free_slot;
	if (i < 0)
		abort();
	names[i] = strdup(name);
	values[i] = strdup(value);
}

#ifndef NO_API
long slurm_api_version(void) { return api << 16; }
#endif
spank_context_t spank_context(void) { return context; }

spank_err_t spank_option_register(spank_t spank, struct spank_option *opt)
{
	say("register %s=%s", opt->name, opt->arginfo);
	option = opt;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	uint32_t *target;
	va_list ap;

	va_start(ap, item);
	target = va_arg(ap, uint32_t *);
	va_end(ap);
	switch (item) {
	case S_JOB_ID: *target = job; return ESPANK_SUCCESS;
	case S_JOB_STEPID: *target = step; return ESPANK_SUCCESS;
	case S_SLURM_RESTART_COUNT:
		if (!have_restart)
			return code(ESPANK_BAD_ARG);
		*target = restart_count;
		return ESPANK_SUCCESS;
	case S_TASK_GLOBAL_ID:
		if (!in_task)
			return code(ESPANK_NOT_TASK);
		*target = rank_of_task;
		return ESPANK_SUCCESS;
	default:
		say("unexpected item %d", item);
		return code(ESPANK_BAD_ARG);
	}
}

spank_err_t spank_getenv(spank_t spank, const char *var, char *buf, int len)
{
	int i = slot_of(var);

	if (context != S_CTX_REMOTE)
		return code(ESPANK_NOT_REMOTE);
	if (i < 0)
		return code(ESPANK_ENV_NOEXIST);
	if (snprintf(buf, len, "%s", values[i]) >= len)
		return code(ESPANK_NOSPACE);
	return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *var, const char *val, int overwrite)
{
	if (context != S_CTX_REMOTE)
		return code(ESPANK_NOT_REMOTE);
	if (!overwrite && slot_of(var) >= 0)
		return code(ESPANK_ENV_EXISTS);
	put(var, val);
	say("setenv %s=%s", var, val);
	return ESPANK_SUCCESS;
}

#define LOGGER(function, word)                        \
	void function(const char *format, ...)        \
	{                                             \
		char line[8192];                      \
		va_list ap;                           \
		va_start(ap, format);                 \
		vsnprintf(line, sizeof line, format, ap); \
		va_end(ap);                           \
		say("%s: %s", word, line);            \
	}
LOGGER(slurm_error, "error")
LOGGER(slurm_info, "info")
LOGGER(slurm_verbose, "verbose")
LOGGER(slurm_debug, "debug")
LOGGER(slurm_spank_log, "user")

static void *busy(void *unused)
{
	(void) unused;
	for (;;) {
		void *memory = malloc(100);
		volatile const char *home = getenv("HOME");
		(void) home;
		free(memory);
	}
	return NULL;
}

static void call(void *library, const char *name, int argc, char **argv)
{
	spank_f *hook = (spank_f *) dlsym(library, name);
	int handle;

	if (!hook)
		return;
	say("%s = %d", name, hook((spank_t) &handle, argc, argv));
}

/* The child ends with 7, so that a plugin which ends it otherwise is noticed. */
static void task(void *library, int argc, char **argv, uint32_t rank, int uid)
{
	int status;
	pid_t child;

	fflush(out);
	child = fork();
	if (child == 0) {
		in_task = 1;
		rank_of_task = rank;
		if (uid && setresuid(uid, uid, uid))
			_exit(99);
		call(library, "slurm_spank_task_init", argc, argv);
		for (int i = 0; i < MAX; i++)
			if (names[i])
				say("task %u has %s=%.40s", rank, names[i], values[i]);
		_exit(7);
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		say("task %u ended by signal %d", rank, WTERMSIG(status));
	else
		say("task %u exit %d", rank, WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	char *args[MAX], *options[MAX], *target;
	int arg_count = 0, option_count = 0, tasks = 1, uid = 0, rounds = 1, thread = 0;
	uint32_t rank = 0;
	pthread_t second;

	if (argc < 3 || !(out = fopen(argv[2], "w")))
		return 2;
	for (int i = 3; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (!value)
			return 2;
		*value++ = '\0';
		if (!strcmp(argv[i], "context"))
			context = !strcmp(value, "local") ? S_CTX_LOCAL :
				  !strcmp(value, "allocator") ? S_CTX_ALLOCATOR :
				  !strcmp(value, "slurmd") ? S_CTX_SLURMD :
				  !strcmp(value, "script") ? S_CTX_JOB_SCRIPT : S_CTX_REMOTE;
		else if (!strcmp(argv[i], "api")) api = atol(value);
		else if (!strcmp(argv[i], "oldcodes")) old_codes = atoi(value);
		else if (!strcmp(argv[i], "arg")) args[arg_count++] = value;
		else if (!strcmp(argv[i], "option")) options[option_count++] = value;
		else if (!strcmp(argv[i], "job")) job = strtoul(value, NULL, 10);
		else if (!strcmp(argv[i], "step")) step = strtoul(value, NULL, 10);
		else if (!strcmp(argv[i], "rank")) rank = strtoul(value, NULL, 10);
		else if (!strcmp(argv[i], "tasks")) tasks = atoi(value);
		else if (!strcmp(argv[i], "uid")) uid = atoi(value);
		else if (!strcmp(argv[i], "rounds")) rounds = atoi(value);
		else if (!strcmp(argv[i], "thread")) thread = atoi(value);
		else if (!strcmp(argv[i], "restart")) {
			have_restart = strcmp(value, "none") != 0;
			restart_count = strtoul(value, NULL, 10);
		} else if (!strcmp(argv[i], "env") && (target = strchr(value, '='))) {
			*target++ = '\0';
			put(value, target);
		} else if (!strcmp(argv[i], "own") && (target = strchr(value, '='))) {
			*target++ = '\0';
			setenv(value, target, 1);
		} else
			return 2;
	}
	if (thread && pthread_create(&second, NULL, busy, NULL))
		return 2;
	for (int round = 0; round < rounds; round++) {
		void *library;

		/* Of many equal rounds only the last one is written down. */
		quiet = round + 1 < rounds;
		library = dlopen(argv[1], RTLD_LAZY);
		if (!library) {
			say("dlopen: %s", dlerror());
			return 3;
		}
		say("loaded %s %s %#x", (char *) dlsym(library, "plugin_name"),
		    (char *) dlsym(library, "plugin_type"), *(uint32_t *) dlsym(library, "plugin_version"));
		call(library, "slurm_spank_init", arg_count, args);
		for (int i = 0; option && i < option_count; i++)
			say("option = %d", option->cb(option->val, options[i], context == S_CTX_REMOTE));
		if (context != S_CTX_SLURMD && context != S_CTX_JOB_SCRIPT)
			call(library, "slurm_spank_init_post_opt", arg_count, args);
		if (context == S_CTX_REMOTE && step != 0xfffffffc)
			for (int i = 0; i < tasks; i++)
				task(library, arg_count, args, rank + i, uid);
		call(library, "slurm_spank_exit", arg_count, args);
		dlclose(library);
	}
	say("end");
	/* Without exit handlers: the second thread is still running. */
	fflush(out);
	_exit(0);
}
