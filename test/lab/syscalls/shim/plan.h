// SPDX-License-Identifier: Apache-2.0
//
// What is asked for, and how far a program has come, is in a file that is mapped by the program,
// by the processes that it forks, or by its tracer, and written by the test: struct plan. The
// points that were passed are appended to a second file.

enum { CALLS = 2048, QEMU_PROGRAM_CALLS = 1000, MATCH = 256 };

// The layout is that of syscalls.go.
struct plan {
	uint32_t watching;    // points are counted and noted
	uint32_t action;      // 0: none, 1: SIGKILL, 2: SIGSTOP
	uint32_t call;        // of the point: the procedure,
	uint32_t time;        // which of its calls since the plan was made,
	uint32_t n;           // and which changing system call of that
	uint32_t fired;       // it was
	uint32_t now;         // the procedure of now
	uint32_t count;       // changing system calls of it so far
	uint32_t times[CALLS];
	char match[MATCH];    // of all but libvirtd: what the path of the image has in it
};

static struct plan *plan;
static char log_path[PATH_MAX];
// The procedures of libvirt's protocol that change something. A refresh of a pool is none: it is
// made now and then, beside the others.
static const uint16_t changing[] = {
	9, 10, 11, 12, 27, 28, 29, 33, 34, 35, 54, 55, 93, 94, 160, 161, 174, 182, 185, 196, 231, 232, 233,
	234, 237, 239, 245, 251, 252, 258, 290, 345, 350, 392, 440, 441, QEMU_PROGRAM_CALLS + 1,
};

// The value of "now" while libvirtd starts: what it does then counts as a call, too.
enum { STARTING = CALLS - 1 };

static int changes(uint32_t call) {
	for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
		if (changing[i] == call)
			return 1;
	return 0;
}

// open_plan maps the plan of a program that is in a directory.
static int open_plan(const char *dir, int dir_len, const char *program) {
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%.*s/%s.plan", dir_len, dir, program);
	snprintf(log_path, sizeof log_path, "%.*s/%s.log", dir_len, dir, program);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return 0;
	void *at = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return 0;
	plan = at;
	return 1;
}

// note appends a line. The file is opened each time: a process that was forked may have closed
// every descriptor, and given its number to another file.
static void note(uint32_t call, uint32_t time, uint32_t n, const char *does, const char *what) {
	char line[PATH_MAX + 128];
	int len = snprintf(line, sizeof line, "%u %u %u %s %s\n", call, time, n, does, *what ? what : "-");
	int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!syscall(SYS_write, fd, line, (size_t)(len < (int)sizeof line ? len : (int)sizeof line - 1));
	syscall(SYS_close, fd);
}

// passed notes a point that comes right before a changing system call. It returns the signal that
// the program is to get there, 0 for none.
static int passed(const char *does, const char *what) {
	if (!plan || !__atomic_load_n(&plan->watching, __ATOMIC_SEQ_CST))
		return 0;
	uint32_t n = __atomic_add_fetch(&plan->count, 1, __ATOMIC_SEQ_CST);
	uint32_t call = __atomic_load_n(&plan->now, __ATOMIC_SEQ_CST);
	uint32_t time = __atomic_load_n(&plan->times[call], __ATOMIC_SEQ_CST);
	note(call, time, n, does, what);
	if (plan->action && plan->call == call && plan->time == time && plan->n == n &&
	    !__atomic_exchange_n(&plan->fired, 1, __ATOMIC_SEQ_CST))
		return plan->action == 1 ? SIGKILL : SIGSTOP;
	return 0;
}

static uint32_t word(const char *at) {
	uint32_t w;
	memcpy(&w, at, sizeof w);
	return ntohl(w);
}

// call_at is the procedure that a message's header at that place names, 0 if it is of another type or
// protocol. A header is program, version, procedure, type, serial, status.
static uint32_t call_at(const char *header, uint32_t type) {
	uint32_t program = word(header), call = word(header + 8);
	if ((program != 0x20008086 && program != 0x20008087) || word(header + 4) != 1 || word(header + 12) != type)
		return 0;
	if (program == 0x20008087)
		call += QEMU_PROGRAM_CALLS;
	return call < STARTING && changes(call) ? call : 0;
}
