// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// restartBound is how long a restart of the daemon may take on a busy machine: much less
// than the copy would, and than systemd would wait before it kills.
const restartBound = 30 * time.Second

// The unit as the packages install it: its sandbox, and what a restart costs.
func TestTheUnitOfThePackages(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	m := installedHost(t)
	at, libvirt := site.In(m, daemonSocket), m.Libvirt()
	for pool, dir := range map[string]string{"old": "/var/lib/libvirt/old", "new": "/var/lib/libvirt/new", "far": "/data/images"} {
		if err := libvirt.DirPool(t.Context(), pool, dir); err != nil {
			t.Fatal(err)
		}
	}
	ctl(t, at, "volume", "create", "data", "--size", "64MiB", "--pool", "old")
	v := get[api.Volume](t, at, "volume", "volume", "show", "data")
	sh(t, m, "dd if=/dev/urandom of="+v.Location.Path+" bs=1M count=64 conv=notrunc status=none; sync")

	t.Run("a restart loses no connection, and waits for no copy", func(t *testing.T) { restarts(t, m, at) })
	t.Run("a pool that the unit does not name takes a drop-in", func(t *testing.T) { takesADropIn(t, m, at) })
	t.Run("what the unit may not do is done beside it", func(t *testing.T) { isDoneBeside(t, m, at) })
	t.Run("a connector is run beside it", func(t *testing.T) { runsConnectors(t, m, at) })
}

// restarts restarts the daemon while it copies, somebody follows the move, and others ask all the
// time.
func restarts(t *testing.T, m *machine.Machine, at site.Caller) {
	ctl(t, at, "volume", "migrate", "data", "--to-pool", "new", "--bandwidth", "256KiB/s", "--no-wait")
	move := get[[]api.Migration](t, at, "migrations", "migration", "list")[0]
	followed := make(chan error, 1)
	go func() {
		_, err := at.Ctl(t.Context(), "migration", "watch", move.ID)
		followed <- err
	}()
	asked := make(chan error, 1)
	go func() {
		_, err := m.Script(t.Context(), `
			n=0
			while [ ! -e /run/enough ]; do volferryctl status >/dev/null; n=$((n + 1)); done
			[ $n -gt 3 ]`)
		asked <- err
	}()
	for range 3 {
		began := time.Now()
		sh(t, m, "systemctl restart volferryd.service")
		if took := time.Since(began); took > restartBound {
			t.Errorf("a restart took %s", took)
		}
	}
	if lines, err := m.Journal(t.Context(), "_SYSTEMD_UNIT=volferryd.service", "VOLFERRY_MIGRATION="+move.ID, "--output=cat"); err != nil || !strings.Contains(lines, "migration begins") {
		t.Errorf("the journal has no record with the move as a field: %q, %v", lines, err)
	}
	sh(t, m, "touch /run/enough")
	if err := <-asked; err != nil {
		t.Errorf("who asked while the daemon was restarted: %v", err)
	}
	if now := get[api.Migration](t, at, "migration", "migration", "show", move.ID); now.FinishedAt != nil {
		t.Fatal("the copy was over before the restarts, which proves nothing")
	}
	ctl(t, at, "migration", "set", move.ID, "--bandwidth", "1GiB/s")
	if err := <-followed; err != nil {
		t.Errorf("who followed the move: %v", err)
	}
	if v := get[api.Volume](t, at, "volume", "volume", "show", "data"); v.Location.Pool != "new" {
		t.Errorf("the volume is in pool %s", v.Location.Pool)
	}
}

// takesADropIn follows what the refusal says.
func takesADropIn(t *testing.T, m *machine.Machine, at site.Caller) {
	const line = "ReadWritePaths=/data/images"
	if _, err := at.Ctl(t.Context(), "volume", "migrate", "data", "--to-pool", "far"); err == nil || !strings.Contains(err.Error(), line) {
		t.Errorf("a move to where the daemon can write nothing: %v", err)
	}
	if out, _ := at.Ctl(t.Context(), "doctor"); !strings.Contains(out, line) {
		t.Errorf("doctor does not say so:\n%s", out)
	}
	sh(t, m, `
		mkdir -p /etc/systemd/system/volferryd.service.d
		printf '[Service]\n`+line+`\n' >/etc/systemd/system/volferryd.service.d/images.conf
		systemctl daemon-reload
		systemctl restart volferryd.service`)
	ctl(t, at, "volume", "migrate", "data", "--to-pool", "far")
	if v := get[api.Volume](t, at, "volume", "volume", "show", "data"); v.Location.Pool != "far" {
		t.Errorf("the volume is in pool %s", v.Location.Pool)
	}
}

// isDoneBeside has a registry that only a network leads to. What libvirt remembers of an image
// was read by the moves before.
func isDoneBeside(t *testing.T, m *machine.Machine, at site.Caller) {
	sh(t, m, "systemctl is-active volferryd-privileged.service volferryd-processes.service volferryd-access.service")
	// In the daemon's own view of the host, and with what it may: it sees none of the processes of
	// others, becomes none of their users, and writes nothing that runs as root.
	sh(t, m, `
		daemon=$(systemctl show --property=MainPID --value volferryd.service)
		may=$((0x$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/$daemon/status)))
		[ $((may & (1 << 19 | 1 << 21 | 1 << 6 | 1 << 7))) = 0 ] # SYS_PTRACE, SYS_ADMIN, SETGID, SETUID
		for at in /etc/libvirt/hooks/qemu.d /etc/volferry; do
			if nsenter --mount=/proc/$daemon/ns/mnt touch $at/by-the-daemon; then echo "$at can be written"; exit 1; fi
		done`)
	reachesNoOtherProcess(t, m)
	ctl(t, at, "volume", "migrate", "data", "--to-pool", "old", "--to-format", "qcow2")
	if runs := sh(t, m, "systemctl show --property=NAccepted --value volferryd-images.socket"); runs == "0" {
		t.Error("no program of QEMU has run in a unit of its own")
	}
	if log := sh(t, m, "journalctl --unit=volferryd.service --output=cat"); hasLandlock() && strings.Contains(log, "no Landlock") {
		t.Error("this kernel has Landlock, and a program of QEMU has run without it: the unit's system calls lack it")
	}
	sh(t, m, `
		cd /root
		setpriv --reuid volferry-registry --regid volferry-registry --clear-groups volferry-registry init-ca --server-name localhost
		volferry-registry issue-cert host hv1 --id "$(cat /var/lib/volferry/host-id)"
		mkdir -p /etc/volferry/tls
		cp hv1/* /etc/volferry/tls
		systemctl enable volferry-registry-tls.socket
		# Somebody calls the registry all the time, as daemons do.
		touch /run/calls
		( while [ -e /run/calls ]; do volferryctl --socket `+registrySocket+` status >/dev/null 2>&1; done ) &
		systemctl restart volferry-registry.service
		rm /run/calls
		echo 'registry = "https://localhost:7643"' >>/etc/volferry/volferryd.toml
		systemctl restart volferryd.service
		timeout 60 sh -c 'until volferryctl volume show data; do sleep 0.2; done'`)
	sh(t, m, "systemctl is-active volferryd-dialer.service")
	sh(t, m, "systemctl stop volferryd-dialer.service")
	ctl(t, at, "volume", "show", "data") // by the connection that it has left
	if links := sh(t, m, `nsenter --net=/proc/$(systemctl show --property=MainPID --value volferryd.service)/ns/net cat /proc/net/dev | grep -c :`); links != "1" {
		t.Errorf("the daemon has %s network interfaces, want the loopback alone", links)
	}
}

// hasLandlock reports whether the kernel, which machines have too, has Landlock.
func hasLandlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version > 0
}

// runsConnectors has a connector that says how many capabilities it has, as its capacity.
func runsConnectors(t *testing.T, m *machine.Machine, at site.Caller) {
	sh(t, m, `
		test -x /usr/libexec/volferry/connectors/lvm
		cat >/usr/libexec/volferry/connectors/fake <<'END'
#!/bin/sh
cat >/dev/null
echo '{"protocol":1,"pool":{"directory":"/dev/fake","capacity_bytes":'$((0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)))',"free_bytes":0,"granularity_bytes":512,"verbs":["inspect","create","delete"]}}'
END
		chmod 0755 /usr/libexec/volferry/connectors/fake
		printf '[connector_pools]\nfake = { connector = "fake" }\n' >>/etc/volferry/volferryd.toml
		volferryd check-config
		systemctl restart volferryd.service`)
	const sysAdmin = 1 << 21 // CAP_SYS_ADMIN, which the daemon does not have
	for _, p := range get[[]api.Pool](t, at, "pools", "pool", "list") {
		if p.Name == "fake" {
			if !p.Active || p.Type != "connector" || p.CapacityBytes&sysAdmin == 0 {
				t.Errorf("the pool is %+v", p)
			}
			sh(t, m, "systemctl is-active volferryd-connectors.service")
			return
		}
	}
	t.Error("the pool of the connector is not listed")
}

// reachesNoOtherProcess makes a process with the rights of the daemon, and one with those of the
// program that sees all processes: neither writes by a path through another process, and the second
// one sees what it has to.
func reachesNoOtherProcess(t *testing.T, m *machine.Machine) {
	sh(t, m, `
		volferryctl doctor --fix >/dev/null || true # which may find other things
		systemctl start volferryd-hook.service volferryd-dialer.service volferryd-storage.service volferryd-connectors.service
		daemon=+chown,+dac_override,+fowner,+lease
		as_daemon() { setpriv --bounding-set=-all,$daemon --inh-caps=-all "$@"; }
		as_daemon test -e /proc/self/root/etc/volferry
		for unit in volferryd-access volferryd-connectors volferryd-dialer volferryd-hook volferryd-privileged volferryd-processes volferryd-storage volferry-registry; do
			pid=$(systemctl show --property=MainPID --value $unit.service)
			[ "$pid" != 0 ]
			until readlink /proc/$pid/exe | grep --quiet /usr/sbin/volferry; do sleep 0.1; done # before that systemd sets it up
			if as_daemon ls /proc/$pid/root/; then echo "the daemon reaches what $unit can write"; grep -e Uid -e Cap /proc/$pid/status; exit 1; fi
			if as_daemon sh -c "exec 4<>/proc/$pid/mem"; then echo "the daemon writes to the memory of $unit"; exit 1; fi
		done

		pid=$(systemctl show --property=MainPID --value volferryd-processes.service)
		uid=$(stat --format=%u /proc/$pid)
		[ "$uid" != 0 ]
		[ $((0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/$pid/status))) = $((1 << 19 | 1 << 2)) ] # SYS_PTRACE, DAC_READ_SEARCH
		as_processes() {
			setpriv --reuid $uid --regid $uid --clear-groups --bounding-set=-all,+sys_ptrace,+dac_read_search \
				--inh-caps=-all,+sys_ptrace,+dac_read_search --ambient-caps=-all,+sys_ptrace,+dac_read_search "$@"
		}
		sleep 600 3<>/var/lib/opened-by-another &
		other=$!
		for path in /proc/1/root/etc/libvirt/hooks/by-processes /proc/$other/fd/3; do
			if as_processes sh -c "echo x >>$path"; then echo "$path is written"; exit 1; fi
		done
		if as_processes sh -c "exec 4<>/proc/$other/mem"; then echo "memory can be written"; exit 1; fi
		as_processes readlink /proc/$other/exe
		as_processes grep flags: /proc/$other/fdinfo/3
		[ "$(as_processes stat --dereference --format=%i /proc/$other/fd/3)" = "$(stat --format=%i /var/lib/opened-by-another)" ]
		kill $other`)
}
