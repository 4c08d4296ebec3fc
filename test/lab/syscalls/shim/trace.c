// SPDX-License-Identifier: Apache-2.0
//
// Starts a program into which no library can be loaded (one of Go's, which makes its system calls
// itself), and has the kernel ask a tracer before each of those that may change something: a filter
// of seccomp with a listener. The tracer numbers them, and kills or stops the program at one of them,
// as the library does. It costs the program two switches of process for each.
//
// A point is a system call on a file of the test's, and a request to libvirt or to the registry. One
// at which the program dies is sent all the same: they work on it when the program is gone.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "plan.h"

static pid_t self; // the program; not what it starts

// How a system call names what it changes: by an argument that is a descriptor, or by one that is a
// path after one that is a directory (Go's are all of this form).
static const struct rule {
	int nr;
	const char *does;
	int by_path;
	int arg;
} rules[] = {
	{SYS_write, "write", 0, 0},
	{SYS_writev, "write", 0, 0},
	{SYS_pwrite64, "pwrite", 0, 0},
	{SYS_pwritev, "pwrite", 0, 0},
	{SYS_fsync, "fsync", 0, 0},
	{SYS_fdatasync, "fdatasync", 0, 0},
	{SYS_ftruncate, "ftruncate", 0, 0},
	{SYS_fallocate, "fallocate", 0, 0},
	{SYS_fchmod, "fchmod", 0, 0},
	{SYS_fchown, "fchown", 0, 0},
	{SYS_copy_file_range, "copy_file_range", 0, 2},
	{SYS_ioctl, "clone", 0, 0},
	{SYS_openat, "create", 1, 1},
	{SYS_mkdirat, "mkdir", 1, 1},
	{SYS_unlinkat, "unlink", 1, 1},
	{SYS_renameat, "rename", 1, 3},
	{SYS_renameat2, "rename", 1, 3},
	{SYS_linkat, "link", 1, 3},
	{SYS_symlinkat, "symlink", 1, 2},
	{SYS_fchmodat, "chmod", 1, 1},
	{SYS_fchownat, "chown", 1, 1},
};
enum { RULES = sizeof rules / sizeof *rules };

static const struct rule *rule_of(int nr) {
	for (size_t i = 0; i < RULES; i++)
		if (rules[i].nr == nr)
			return &rules[i];
	return NULL;
}

// listen_to installs the filter and returns its listener. Of openat it asks about what creates, of
// ioctl about clones.
static int listen_to(void) {
	struct sock_filter code[2 * RULES + 16];
	size_t n = 0;
#define EMIT(...) code[n++] = (struct sock_filter)__VA_ARGS__
#define ARG(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[i]))
	EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < RULES; i++) {
		if (rules[i].nr == SYS_openat || rules[i].nr == SYS_ioctl)
			continue;
		EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rules[i].nr, 0, 1));
		EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
	}
	EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 2));
	EMIT(ARG(2));
	EMIT(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 4, 5));
	EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4));
	EMIT(ARG(1));
	EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FICLONE, 1, 0));
	EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FICLONERANGE, 0, 1));
	EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
	EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	struct sock_fprog program = {(unsigned short)n, code};
	// A signal must not have a call begin again, and be counted twice.
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
}

static ssize_t read_from(pid_t pid, uint64_t at, void *buf, size_t len) {
	struct iovec here = {buf, len}, there = {(void *)(uintptr_t)at, len};
	return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

static int link_of(int fd, char *path, size_t size) {
	char link[64];
	snprintf(link, sizeof link, "/proc/%d/fd/%d", self, fd);
	ssize_t n = readlink(link, path, size - 1);
	path[n < 0 ? 0 : n] = 0;
	return n > 0;
}

// path_at reads a path of the program's memory, up to the end of its page at the least.
static int path_at(const struct seccomp_notif *call, int arg, char *path, size_t size) {
	char name[PATH_MAX] = "";
	uint64_t at = call->data.args[arg];
	size_t page = 4096 - at % 4096, len = page < sizeof name - 1 ? page : sizeof name - 1;
	if (read_from((pid_t)call->pid, at, name, len) <= 0)
		return 0;
	if (!memchr(name, 0, len) && read_from((pid_t)call->pid, at + len, name + len, sizeof name - 1 - len) <= 0)
		return 0;
	if (name[0] == '/') {
		snprintf(path, size, "%s", name);
		return 1;
	}
	char dir[PATH_MAX];
	if (!link_of((int)call->data.args[arg - 1], dir, sizeof dir))
		return 0;
	return snprintf(path, size, "%s/%s", dir, name) < (int)size;
}

// request is what a message to a socket asks for, if it asks for a change. What hosts say of
// themselves now and then is none.
static int request(const char *text, size_t len, char *what, size_t size) {
	if (len >= 28) {
		uint32_t call = call_at(text + 4, 0);
		if (call) {
			snprintf(what, size, "libvirt:%u", call);
			return 1;
		}
	}
	static const char *const methods[] = {"POST ", "PUT ", "PATCH ", "DELETE "};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strncmp(text, methods[i], strlen(methods[i])))
			continue;
		char line[128];
		snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\r\n"), text);
		if (strstr(line, "/report") || strstr(line, "/tasks") || strstr(line, "/events"))
			return 0;
		char *path = strchr(line, ' ') + 1;
		snprintf(what, size, "registry:%.*s", (int)strcspn(path, " ?"), path);
		return 1;
	}
	return 0;
}

// send_for sends what the program is about to send.
static void send_for(const struct seccomp_notif *call) {
	size_t len = call->data.args[2];
	char *data = malloc(len);
	int process = (int)syscall(SYS_pidfd_open, self, 0);
	int fd = (int)syscall(SYS_pidfd_getfd, process, (int)call->data.args[0], 0);
	if (data && fd >= 0 && read_from((pid_t)call->pid, call->data.args[1], data, len) == (ssize_t)len)
		(void)!write(fd, data, len);
	free(data);
	close(fd);
	close(process);
}

// at_point says of a call what it does on what, if it is a point. Asks is whether it is a request.
static const char *at_point(const struct seccomp_notif *call, char *what, size_t size, int *asks) {
	const struct rule *rule = rule_of(call->data.nr);
	struct stat st;
	*asks = 0;
	if (!rule)
		return NULL;
	if (rule->by_path) {
		if (!path_at(call, rule->arg, what, size) || !strstr(what, plan->match))
			return NULL;
		int there = !lstat(what, &st);
		if ((call->data.nr == SYS_openat || call->data.nr == SYS_mkdirat) ? there : call->data.nr == SYS_unlinkat && !there)
			return NULL; // nothing changes
		return rule->does;
	}
	int fd = (int)call->data.args[rule->arg];
	if (fd <= 2 || !link_of(fd, what, size))
		return NULL;
	if (!strncmp(what, "socket:", 7)) {
		char text[192] = "";
		ssize_t len = call->data.nr == SYS_write ? read_from((pid_t)call->pid, call->data.args[1], text, call->data.args[2] < sizeof text - 1 ? call->data.args[2] : sizeof text - 1) : 0;
		*asks = len > 0 && request(text, (size_t)len, what, size);
		return *asks ? "ask" : NULL;
	}
	return what[0] == '/' && strstr(what, plan->match) ? rule->does : NULL;
}

static int of_program(pid_t thread) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d", self, thread);
	return !access(path, F_OK);
}

// answer lets a call pass, or kills the program before it.
static void answer(int listener, const struct seccomp_notif *call) {
	char what[PATH_MAX + 2];
	int asks, signal = 0;
	if (__atomic_load_n(&plan->watching, __ATOMIC_SEQ_CST) && of_program((pid_t)call->pid)) {
		const char *does = at_point(call, what, sizeof what, &asks);
		if (does)
			signal = passed(does, what);
	}
	if (signal == SIGKILL && asks)
		send_for(call);
	if (signal)
		kill(self, signal);
	if (signal == SIGKILL)
		return;
	struct seccomp_notif_resp go_on = {.id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
	(void)!ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on); // its thread may be dead
}

static void trace(int listener) {
	for (;;) {
		struct pollfd at = {listener, POLLIN, 0};
		if (poll(&at, 1, -1) < 0 && errno != EINTR)
			_exit(1);
		if (!(at.revents & POLLIN)) {
			if (at.revents & (POLLHUP | POLLERR))
				_exit(0);
			continue;
		}
		struct seccomp_notif call;
		memset(&call, 0, sizeof call);
		if (!ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			answer(listener, &call);
	}
}

// A descriptor goes along with one byte. sendmsg is not asked about.
static int pass_on(int socket, int sends, int fd) {
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = "";
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	struct cmsghdr *with = (struct cmsghdr *)(void *)room;
	if (sends) {
		with->cmsg_level = SOL_SOCKET;
		with->cmsg_type = SCM_RIGHTS;
		with->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(with), &fd, sizeof fd);
		return sendmsg(socket, &msg, 0) == 1 ? fd : -1;
	}
	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&msg))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
	return fd;
}

int main(int argc, char **argv) {
	(void)argc;
	int pair[2];
	self = getpid();
	if (!open_plan(PLANS, (int)strlen(PLANS), PROGRAM) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 1;
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		if (chdir("/"))
			_exit(1);
		trace(pass_on(pair[0], 0, -1));
	}
	int listener = listen_to();
	if (listener < 0 || pass_on(pair[1], 1, listener) < 0) {
		perror("filter the system calls");
		_exit(1);
	}
	execv(BEHIND, argv);
	_exit(1);
}
