/* Preloaded into slurmd and slurmstepd: of /proc/PID/cgroup they see the line of version 2 only, as on a host without
 * version 1. Slurm's v2 plugin refuses to start on any other. It reads such files with open(2) [src/plugins/cgroup/v2]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int only_v2(int file)
{
	char text[65536];
	ssize_t length = read(file, text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = '\0';
	close(file);
	int copy = memfd_create("cgroup", MFD_CLOEXEC);
	char *line = strstr(text, "0::");
	char *end = line ? strchr(line, '\n') : NULL;
	if (copy >= 0 && end && write(copy, line, end + 1 - line) > 0)
		lseek(copy, 0, SEEK_SET);
	return copy;
}

static int open_any(const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
	int file = real(path, flags, mode);
	size_t length = strlen(path);
	int is_cgroup = length > 13 && !strncmp(path, "/proc/", 6) && !strcmp(path + length - 7, "/cgroup");
	return file >= 0 && is_cgroup ? only_v2(file) : file;
}

#define OPEN(name)                                        \
	int name(const char *path, int flags, ...)        \
	{                                                 \
		va_list rest;                             \
		va_start(rest, flags);                    \
		mode_t mode = va_arg(rest, mode_t);       \
		va_end(rest);                             \
		return open_any(path, flags, mode);       \
	}
OPEN(open)
OPEN(open64)
