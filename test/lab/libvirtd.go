// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// daemonTimeout bounds the start of one daemon. libvirtd asks every QEMU on the
// machine what it can do before it answers, which is slow on a busy machine.
const daemonTimeout = 90 * time.Second

// Libvirtd is a private libvirtd: its own sockets, configuration, state, logs
// and cache in a mount namespace of its own, beside whatever the host runs. Its
// methods may be called from one goroutine at a time.
type Libvirtd struct {
	// Connection has the lab's directory as its Dir. What is mounted below that, before
	// or after the start, libvirtd and its guests see too.
	*Connection
	// Socket is the read-write socket, for clients outside the namespace.
	Socket string
	// HooksDir is what libvirtd sees as /etc/libvirt/hooks: etc/hooks in Dir.
	// A hook that is there before the start is heeded from the start, the first
	// one that comes later from the next Reload on.
	HooksDir string
	// RunDir is what libvirtd sees as /run/libvirt: qemu/NAME.pid is there.
	RunDir string
	// EtcDir is what libvirtd sees as /etc/libvirt: qemu/NAME.xml is there.
	EtcDir string
	// Preload is a library that libvirtd, and what it starts, loads before all others, from
	// its next start on.
	Preload string

	claim     *claim
	virtlogd  *daemon
	virtlockd *daemon // nil if there is none, see UseLockManager
	libvirtd  *daemon
}

// daemon is a child process of ours.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for
}

// StartLibvirtd starts a private libvirtd with its state below dir, and virtlogd
// beside it. It returns when libvirtd answers. ctx bounds the start only. Close
// must be called. The first one of a process removes what killed labs left (Sweep).
func StartLibvirtd(ctx context.Context, dir string) (*Libvirtd, error) {
	sweepOnce()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start libvirtd: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("start libvirtd: %w", err)
	}
	l := &Libvirtd{
		Socket:   filepath.Join(dir, "run", "libvirt-sock"),
		HooksDir: filepath.Join(dir, "etc", "hooks"),
		RunDir:   filepath.Join(dir, "run"),
		EtcDir:   filepath.Join(dir, "etc"),
	}
	l.Connection = &Connection{
		Dir: dir, channels: channelsIn(filepath.Join(dir, "lib"), filepath.Join(dir, "run")),
		virsh: func(ctx context.Context, args ...string) (string, error) {
			return run(ctx, "virsh", append([]string{"-q", "-c", l.URI()}, args...)...)
		},
	}
	if len(filepath.Join(l.RunDir, "libvirt-admin-sock")) >= maxSocketPath {
		return nil, fmt.Errorf("start libvirtd: directory %s is too long for unix sockets; use lab.TempDir", dir)
	}
	if err := errors.Join(layOut(dir), copyCapabilities(sharedCapabilities(), capabilitiesIn(dir))); err != nil {
		return nil, err
	}
	if l.claim, err = claimDir(dir); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		return nil, fmt.Errorf("start libvirtd: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

func (l *Libvirtd) start(ctx context.Context) error {
	if err := shareDir(l.Dir); err != nil {
		return err
	}
	if err := l.keepStatusInMemory(); err != nil {
		return err
	}
	if err := l.startVirtlogd(ctx); err != nil {
		return err
	}
	if err := l.dropForeignMounts(ctx); err != nil {
		return err
	}
	if err := l.startVirtlockd(ctx); err != nil {
		return err
	}
	return l.startLibvirtd(ctx)
}

// keepStatusInMemory makes the directory of the guests' status a tmpfs, as all of /run is on a
// host: libvirtd waits for the status to be durable in every call that changes a guest, and a
// guest that is suspended for several calls stands still meanwhile.
func (l *Libvirtd) keepStatusInMemory() error {
	dir := statusDir(l.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of status: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs for the status of guests: %w", err)
	}
	return labelLike(dir, "/run/libvirt/qemu")
}

// statusDir is where the libvirtd of the lab in dir keeps the status of its guests.
func statusDir(dir string) string { return filepath.Join(dir, "run", "qemu") }

// startVirtlogd starts virtlogd in a new mount namespace and so makes the
// namespace: it lives as long as virtlogd or a guest does, whatever becomes of
// libvirtd. The namespace receives what is mounted below Dir and passes nothing
// back.
func (l *Libvirtd) startVirtlogd(ctx context.Context) error {
	script := []string{"set -e"}
	for _, d := range privateDirs {
		script = append(script, fmt.Sprintf(`mkdir -p %s; mount --rbind "$1/%s" %s`, d.seenAt, d.name, d.seenAt))
	}
	// As udev has it on a host. libvirt asks every QEMU again what it can do, for each
	// call, if that has KVM and QEMU's user may not use it.
	script = append(script, `if [ -c /dev/kvm ] && { [ -c "$1/kvm" ] || mknod -m 0666 "$1/kvm" c 10 232; }; then mount --bind "$1/kvm" /dev/kvm; fi`)
	script = append(script, "exec virtlogd -f /etc/libvirt/virtlogd.conf -p /run/libvirt/virtlogd.pid")
	var err error
	l.virtlogd, err = l.spawn("virtlogd", nil, "unshare", "--mount", "--propagation", "slave",
		"sh", "-c", strings.Join(script, "\n"), "lab", l.Dir)
	if err != nil {
		return err
	}
	return l.waitSocket(ctx, "virtlogd", l.virtlogd, filepath.Join(l.RunDir, "virtlogd-sock"))
}

// startVirtlockd starts virtlockd in the namespace, if UseLockManager was called for this
// directory.
func (l *Libvirtd) startVirtlockd(ctx context.Context) error {
	_, err := os.Stat(filepath.Join(l.EtcDir, virtlockdConf))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start virtlockd: %w", err)
	}
	l.virtlockd, err = l.spawn("virtlockd", nil, "nsenter",
		l.enter("virtlockd", "-f", "/etc/libvirt/"+virtlockdConf, "-p", "/run/libvirt/virtlockd.pid")...)
	if err != nil {
		return err
	}
	return l.waitSocket(ctx, "virtlockd", l.virtlockd, filepath.Join(l.RunDir, "virtlockd-sock"))
}

// enter prefixes a command with what runs it in the namespace.
func (l *Libvirtd) enter(command ...string) []string {
	return append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", l.virtlogd.cmd.Process.Pid)}, command...)
}

// dropForeignMounts unmounts, in the namespace, what other processes' labs had
// mounted when it was made: a copy here would keep their file systems busy.
func (l *Libvirtd) dropForeignMounts(ctx context.Context) error {
	all, err := claims()
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.PID == os.Getpid() || within(c.Dir, l.Dir) {
			continue
		}
		points, err := mountsUnder(c.Dir)
		if err != nil {
			return err
		}
		for _, p := range slices.Backward(points) {
			// It may have come after the namespace was made, or be gone.
			_, _ = run(ctx, "nsenter", l.enter("umount", "--lazy", p)...)
		}
	}
	return nil
}

func (l *Libvirtd) startLibvirtd(ctx context.Context) error {
	// A socket that a killed daemon left would look like a living one's.
	if err := os.Remove(l.Socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	var preload []string
	if l.Preload != "" {
		preload = []string{"LD_PRELOAD=" + l.Preload}
	}
	var err error
	l.libvirtd, err = l.spawn("libvirtd", preload, "nsenter",
		l.enter("libvirtd", "-f", "/etc/libvirt/libvirtd.conf", "-p", "/run/libvirt/libvirtd.pid")...)
	if err != nil {
		return err
	}
	if err := l.waitSocket(ctx, "libvirtd", l.libvirtd, l.Socket); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Limit(daemonTimeout))
	defer cancel()
	_, err = l.Virsh(ctx, "list") // answered only when every driver is ready
	return err
}

// spawn starts a daemon in its own process group, so that an interrupt from the
// terminal reaches only us, with its standard error in the log directory, and with
// these additional variables in its environment.
func (l *Libvirtd) spawn(name string, env []string, program string, args ...string) (*daemon, error) {
	stderr, err := os.OpenFile(filepath.Join(l.Dir, "log", name+".stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.Command(program, args...) //nolint:noctx // it outlives the call
	cmd.Dir = "/"
	// The host's systemd-machined would get the guests of all labs, whose names are alike.
	cmd.Env = append(append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"), env...)
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &daemon{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return d, nil
}

// waitSocket waits until something listens at path, or the daemon is dead.
func (l *Libvirtd) waitSocket(ctx context.Context, name string, d *daemon, path string) error {
	ctx, cancel := context.WithTimeout(ctx, Limit(daemonTimeout))
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-d.done:
			log, _ := os.ReadFile(filepath.Join(l.Dir, "log", name+".stderr"))
			return fmt.Errorf("%s ended at once: %s", name, strings.TrimSpace(string(log)))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", name, ctx.Err())
		case <-ticker.C:
		}
	}
}

// URI is the connection URI for virsh and other libvirt clients.
func (l *Libvirtd) URI() string {
	return "qemu+unix:///system?socket=" + l.Socket
}

// Kill kills libvirtd alone, as a crash of it would. Guests live on.
func (l *Libvirtd) Kill() error {
	if err := l.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-l.libvirtd.done
	return nil
}

// Stop freezes libvirtd: it neither answers nor ends, until Cont.
func (l *Libvirtd) Stop() error { return l.signal(unix.SIGSTOP) }

// Cont lets a stopped libvirtd go on.
func (l *Libvirtd) Cont() error { return l.signal(unix.SIGCONT) }

// Reload makes libvirtd look for hooks and configuration again, soon.
func (l *Libvirtd) Reload() error { return l.signal(unix.SIGHUP) }

// Running reports whether libvirtd has not ended.
func (l *Libvirtd) Running() bool {
	select {
	case <-l.libvirtd.done:
		return false
	default:
		return true
	}
}

// PID is the process id of libvirtd.
func (l *Libvirtd) PID() int { return l.libvirtd.cmd.Process.Pid }

func (l *Libvirtd) signal(sig unix.Signal) error {
	if err := l.libvirtd.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to libvirtd: %w", sig, err)
	}
	return nil
}

// Restart ends libvirtd, if it runs, and starts it again. Guests live on.
func (l *Libvirtd) Restart(ctx context.Context) error {
	select {
	case <-l.libvirtd.done:
	default:
		// Frozen or not, it must go.
		if err := errors.Join(l.signal(unix.SIGTERM), l.Cont()); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-l.libvirtd.done:
		case <-time.After(Limit(daemonTimeout)):
			return errors.New("restart libvirtd: it did not end")
		}
	}
	return l.startLibvirtd(ctx)
}

// HandOnCapabilities hands on to later labs what libvirtd has asked QEMU up to now, which takes
// seconds. Close does so too.
func (l *Libvirtd) HandOnCapabilities() error { return handOnCapabilities(l.Dir) }

// Close destroys the guests and ends the daemons, and undoes the mounts and
// loop devices below Dir. The files stay. It may be called twice.
func (l *Libvirtd) Close() error {
	if l.claim == nil {
		return nil
	}
	err := errors.Join(handOnCapabilities(l.Dir), clean(l.Dir))
	var reaped sync.WaitGroup
	for _, d := range []*daemon{l.libvirtd, l.virtlockd, l.virtlogd} {
		if d != nil {
			reaped.Go(func() { <-d.done })
		}
	}
	if err == nil {
		reaped.Wait()
		err = l.claim.release()
		l.claim = nil
	}
	if err != nil {
		return fmt.Errorf("close lab: %w", err)
	}
	return nil
}
