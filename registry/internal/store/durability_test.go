// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestChangesAfterCloseAreUnavailable(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "late"})
	wantCode(t, err, api.CodeRegistryUnavailable, "stopping")
}

// victimEnv makes this test binary a registry that acknowledges volumes until it is killed.
const victimEnv = "VOLFERRY_TEST_VICTIM"

// victimClients is the number of concurrent changes in the victim.
const victimClients = 16

// runVictim does not return in the victim.
func runVictim() {
	path := os.Getenv(victimEnv)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := Open(ctx, path, Options{})
	if err == nil {
		_, err = s.Reports.Receive(ctx, nobody, reportOfFast())
	}
	if err == nil {
		failed := make(chan error)
		for client := range victimClients {
			go func() {
				for n := client; ; n += victimClients {
					if _, err := s.Volumes.Register(ctx, Call{Key: fmt.Sprint("key-", n)}, numbered(n)); err != nil {
						failed <- err
					}
					fmt.Fprintln(os.Stdout, n)
				}
			}()
		}
		err = <-failed
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestWhatWasAcknowledgedIsThereAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+path)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var acknowledged []int
	read := func() bool {
		if !lines.Scan() {
			return false
		}
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		acknowledged = append(acknowledged, n)
		return true
	}
	for len(acknowledged) < 300 && read() {
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for read() { // acknowledged while it was killed
	}
	if err := victim.Wait(); err == nil || len(acknowledged) < 300 {
		t.Fatalf("the victim ended by itself: %v after %d", err, len(acknowledged))
	}

	s := openStore(t, path)
	for _, n := range acknowledged {
		if _, err := s.Volumes.Get(t.Context(), id(volumeKind, n), Viewer{}); err != nil {
			t.Errorf("volume %d was acknowledged: %v", n, err)
		}
	}
	volumes := len(must(s.Volumes.All(t.Context(), Viewer{}))(t))
	if volumes > len(acknowledged)+victimClients {
		t.Errorf("volumes = %d, want the %d acknowledged ones and at most those in flight", volumes, len(acknowledged))
	}
	wantWhole(t, s, volumes)
}
