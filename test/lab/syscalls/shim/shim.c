// SPDX-License-Identifier: Apache-2.0
//
// A library that is loaded before all others (LD_PRELOAD) into libvirtd and what it starts.
// It numbers the system calls by which a program changes something, and kills or stops the
// program right before one of them. Package syscalls, which compiles it, says which and why.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "plan.h"

static pid_t self; // the program; not what it forks
static int is_libvirtd, is_server;

// The programs, by the beginnings of their names.
static const struct program {
	const char *begins;
	const char *name;
} programs[] = {
	{"libvirtd", "libvirtd"},
	{"qemu-system", "qemu"},
	{"qemu-img", "qemu-img"},
	{"qemu-storage-daemon", "qemu-storage-daemon"},
};

static const char *program_of(const char *name) {
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
		if (!strncmp(name, programs[i].begins, strlen(programs[i].begins)))
			return programs[i].name;
	return NULL;
}

static void begin(uint32_t call) {
	__atomic_add_fetch(&plan->times[call], 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&plan->count, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&plan->now, call, __ATOMIC_SEQ_CST);
}

__attribute__((constructor)) static void load(void) {
	const char *which = program_of(program_invocation_short_name);
	Dl_info info;
	if (!which || !dladdr((void *)load, &info) || !info.dli_fname)
		return;
	is_libvirtd = !strcmp(which, "libvirtd");
	is_server = !strcmp(which, "qemu-storage-daemon");
	const char *slash = strrchr(info.dli_fname, '/');
	if (!open_plan(info.dli_fname, slash ? (int)(slash - info.dli_fname) : 0, which))
		return;
	self = getpid();
	if (is_libvirtd)
		begin(STARTING);
}

// point is passed right before a changing system call.
static void point(const char *does, const char *what) {
	int saved = errno, signal = passed(does, what);
	if (signal) {
		kill(self, signal);
		// The signal is there when kill returns, in the process that it is for.
		if (signal == SIGKILL && self == getpid())
			for (;;)
				pause();
	}
	errno = saved;
}

static int path_of(int fd, char *path, size_t size) {
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, size - 1);
	path[n < 0 ? 0 : n] = 0;
	return n > 0;
}

static int ends(const char *s, const char *with) {
	size_t a = strlen(s), b = strlen(with);
	return a >= b && !strcmp(s + a - b, with);
}

// kept: a file that outlives the process, and is no log.
static int kept(const char *path) {
	static const char *const apart[] = {"/var/log/libvirt/", "/proc/", "/dev/null", "/dev/urandom", "/var/cache/libvirt/"};
	for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
		if (!strncmp(path, apart[i], strlen(apart[i])))
			return 0;
	return path[0] == '/' && strncmp(path + strlen(path) - (strlen(path) > 10 ? 10 : 0), " (deleted)", 10);
}

static int socket_name(int fd, int peer, char *path, size_t size) {
	struct sockaddr_un at;
	socklen_t len = sizeof at;
	memset(&at, 0, sizeof at);
	if ((peer ? getpeername(fd, (struct sockaddr *)&at, &len) : getsockname(fd, (struct sockaddr *)&at, &len)) || at.sun_family != AF_UNIX)
		return 0;
	snprintf(path, size, "%.*s", (int)sizeof at.sun_path, at.sun_path);
	return path[0] != 0;
}

// qmp is a point if the message to QEMU is a command that changes something.
static void qmp(const char *buf, size_t len) {
	static const char key[] = "\"execute\":\"";
	const char *at = memmem(buf, len, key, sizeof key - 1);
	if (!at)
		return;
	at += sizeof key - 1;
	char name[64] = "";
	for (size_t i = 0; i + 1 < sizeof name && at + i < buf + len && at[i] != '"'; i++)
		name[i] = at[i];
	static const char *const reads[] = {"query-", "qom-list", "qom-get", "device-list-properties", "qmp_capabilities"};
	for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
		if (!strncmp(name, reads[i], strlen(reads[i])))
			return;
	point("qmp", name);
}

static void writing(int fd, const char *buf, size_t len) {
	struct stat st;
	char path[PATH_MAX];
	int saved = errno;
	if (fstat(fd, &st))
		;
	else if (S_ISREG(st.st_mode)) {
		if (path_of(fd, path, sizeof path) && kept(path))
			point("write", path);
	} else if (S_ISSOCK(st.st_mode)) {
		if (socket_name(fd, 1, path, sizeof path) && ends(path, "/monitor.sock"))
			qmp(buf, len);
		else if (len >= 28 && socket_name(fd, 0, path, sizeof path) && ends(path, "libvirt-sock") &&
			 call_at(buf + 4, 1) == __atomic_load_n(&plan->now, __ATOMIC_SEQ_CST))
			point("answer", "");
	}
	errno = saved;
}

// watched: points of libvirtd are counted now.
static int watched(void) { return plan && is_libvirtd && __atomic_load_n(&plan->watching, __ATOMIC_SEQ_CST); }

static void changing_file(const char *does, int fd) {
	char path[PATH_MAX];
	if (watched() && path_of(fd, path, sizeof path) && kept(path))
		point(does, path);
}

// there: libvirtd makes and removes without a look whether that changes anything.
static int there(const char *path) {
	struct stat st;
	int saved = errno, is = !lstat(path, &st);
	errno = saved;
	return is;
}

static void changing_path(const char *does, const char *path) {
	if (watched() && kept(path))
		point(does, path);
}

// An image is one that is asked for.
static int of_image(int fd) {
	char path[PATH_MAX];
	return plan && !is_libvirtd && plan->watching && plan->match[0] && path_of(fd, path, sizeof path) && strstr(path, plan->match);
}

#define NEXT(name) \
	static __typeof__(name) *next; \
	if (!next) \
		next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t read(int fd, void *buf, size_t len) {
	NEXT(read);
	ssize_t n = next(fd, buf, len);
	if (n >= 24 && watched()) {
		uint32_t call = call_at(buf, 0);
		char path[128];
		int saved = errno;
		if (call && socket_name(fd, 0, path, sizeof path) && ends(path, "libvirt-sock"))
			begin(call);
		errno = saved;
	}
	return n;
}

ssize_t write(int fd, const void *buf, size_t len) {
	NEXT(write);
	if (watched())
		writing(fd, buf, len);
	return next(fd, buf, len);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags) {
	NEXT(sendmsg);
	if (watched() && msg->msg_iovlen > 0)
		writing(fd, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len);
	return next(fd, msg, flags);
}

int fsync(int fd) {
	NEXT(fsync);
	changing_file("fsync", fd);
	int image = of_image(fd);
	if (image)
		point("fsync", "before");
	int rc = next(fd);
	if (image)
		point("fsync", "after");
	return rc;
}

int fdatasync(int fd) {
	NEXT(fdatasync);
	changing_file("fdatasync", fd);
	int image = of_image(fd);
	if (image)
		point("fdatasync", "before");
	int rc = next(fd);
	if (image)
		point("fdatasync", "after");
	return rc;
}

static void changing_image(const char *does, int fd) {
	if (of_image(fd))
		point(does, "-");
}

// reading_image: what a server of an image does for a copy from there is to read.
static void reading_image(const char *does, int fd) {
	if (is_server)
		changing_image(does, fd);
}

ssize_t pread64(int fd, void *buf, size_t len, off64_t at) {
	NEXT(pread64);
	reading_image("pread", fd);
	return next(fd, buf, len, at);
}

ssize_t preadv64(int fd, const struct iovec *iov, int count, off64_t at) {
	NEXT(preadv64);
	reading_image("preadv", fd);
	return next(fd, iov, count, at);
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t at) {
	NEXT(pwrite64);
	changing_image("pwrite", fd);
	return next(fd, buf, len, at);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t at) {
	NEXT(pwritev64);
	changing_image("pwritev", fd);
	return next(fd, iov, count, at);
}

int fallocate64(int fd, int mode, off64_t at, off64_t len) {
	NEXT(fallocate64);
	changing_image("fallocate", fd);
	return next(fd, mode, at, len);
}

int ftruncate64(int fd, off64_t size) {
	NEXT(ftruncate64);
	changing_file("ftruncate", fd);
	changing_image("ftruncate", fd);
	return next(fd, size);
}

int fchown(int fd, uid_t uid, gid_t gid) {
	NEXT(fchown);
	changing_file("fchown", fd);
	return next(fd, uid, gid);
}

int fchmod(int fd, mode_t mode) {
	NEXT(fchmod);
	changing_file("fchmod", fd);
	return next(fd, mode);
}

int rename(const char *from, const char *to) {
	NEXT(rename);
	changing_path("rename", to);
	return next(from, to);
}

int unlink(const char *path) {
	NEXT(unlink);
	if (there(path))
		changing_path("unlink", path);
	return next(path);
}

int rmdir(const char *path) {
	NEXT(rmdir);
	if (there(path))
		changing_path("rmdir", path);
	return next(path);
}

int mkdir(const char *path, mode_t mode) {
	NEXT(mkdir);
	if (!there(path))
		changing_path("mkdir", path);
	return next(path, mode);
}

int symlink(const char *to, const char *path) {
	NEXT(symlink);
	changing_path("symlink", path);
	return next(to, path);
}

int mknod(const char *path, mode_t mode, dev_t dev) {
	NEXT(mknod);
	changing_path("mknod", path);
	return next(path, mode, dev);
}

int chown(const char *path, uid_t uid, gid_t gid) {
	NEXT(chown);
	changing_path("chown", path);
	return next(path, uid, gid);
}

int chmod(const char *path, mode_t mode) {
	NEXT(chmod);
	changing_path("chmod", path);
	return next(path, mode);
}

int setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
	NEXT(setxattr);
	changing_path("setxattr", path);
	return next(path, name, value, size, flags);
}

int removexattr(const char *path, const char *name) {
	NEXT(removexattr);
	changing_path("removexattr", path);
	return next(path, name);
}

int kill(pid_t pid, int sig) {
	NEXT(kill);
	if (sig && pid != self && watched())
		point("kill", sig == SIGKILL ? "SIGKILL" : sig == SIGTERM ? "SIGTERM" : "other");
	return next(pid, sig);
}

int execve(const char *path, char *const argv[], char *const envp[]) {
	NEXT(execve);
	changing_path("execve", path);
	return next(path, argv, envp);
}
