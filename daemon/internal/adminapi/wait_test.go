// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// worldRegistry answers the API's own requests from a migration's world.
type worldRegistry struct {
	Registry
	world *migratetest.World
}

func (r worldRegistry) Volume(ctx context.Context, ref string) (api.Volume, error) {
	return r.world.Registry.Volume(ctx, ref)
}

func (r worldRegistry) Attachment(ctx context.Context, ref string) (api.Attachment, error) {
	return r.world.Registry.Attachment(ctx, ref)
}

// newMover returns an API on a host that can move a world's volume with a running guest.
func newMover(t *testing.T) (*Server, *migratetest.World) {
	t.Helper()
	w, records, quiet := migratetest.NewWorld(t, hv.StateRunning), optest.NewJournal(), slog.New(slog.DiscardHandler)
	rules := location.Rules{AllowedPaths: []string{os.TempDir(), "/var", "/dev"}, Storage: w}
	d := hosttest.Start(t, hosttest.Program[*migrate.Manager]{
		Runner: op.Config{Journal: records, Describe: request.Describe},
		New: func(runner *op.Runner) *migrate.Manager {
			host := func(context.Context) (move.Host, error) {
				return move.Host{ID: migratetest.Host, Epoch: w.Registry.ReportedEpoch(migratetest.Host)}, nil
			}
			return migrate.New(move.Config{OverlayDir: "/overlays", Rules: rules}, w.Ports(), runner, records, host, quiet)
		},
		Run: func(m *migrate.Manager, ctx context.Context) error { return m.Run(ctx, func() {}) },
	})
	s := newServer(t, "/nonexistent", nil)
	s.Registry = worldRegistry{world: w}
	s.Migrations, s.Runner = d.Now()
	return s, w
}

const startPath = "/v1/attachments/" + migratetest.SrcAttachment + "/migration:start"

type moveAnswer struct {
	Op        api.Op
	Migration api.Migration
	Error     *api.Error
}

func askMove(t *testing.T, s *Server, path string) (int, moveAnswer) {
	t.Helper()
	status, body := askOf(t, s, http.MethodPost, path, `{"to_pool":"new"}`)
	var answer moveAnswer
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	return status, answer
}

// The specification's start is synchronous: it returns once src is not written any more.
func TestAStartThatIsWaitedForIsAnsweredWhenSrcIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newMover(t)
		status, answer := askMove(t, s, startPath+"?wait=1m")
		if status != http.StatusOK || answer.Op.State != api.OpDone || answer.Migration.State != api.MigrationStarted {
			t.Errorf("%d, the op is %s and the migration %s (%v)", status, answer.Op.State, answer.Migration.State, answer.Error)
		}
	})
}

func TestAStartThatIsWaitedForAndFailsIsAnsweredWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newMover(t)
		if err := w.KeepWritable(migratetest.Instance); err != nil { // QEMU keeps src writable
			t.Fatal(err)
		}
		status, answer := askMove(t, s, startPath+"?wait=1m")
		if status != http.StatusUnprocessableEntity || answer.Error == nil || answer.Error.Code != api.CodeUnsupportedDisk {
			t.Errorf("%d %+v, want unsupported_disk", status, answer)
		}
	})
}

func TestAStartThatIsNotWaitedForIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newMover(t)
		if status, answer := askMove(t, s, startPath); status != http.StatusAccepted || answer.Op.ID == "" || answer.Migration.ID == "" {
			t.Errorf("%d, %+v", status, answer)
		}
	})
}

func TestAWaitThatIsTooShortIsAnsweredWithTheOpThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newMover(t)
		status, answer := askMove(t, s, "/v1/volumes/"+migratetest.Volume+"/migrate?wait=1ns")
		if status != http.StatusAccepted || answer.Op.State != "running" {
			t.Errorf("%d, the op is %s (%v)", status, answer.Op.State, answer.Error)
		}
	})
}

func TestAWaitThatMakesNoSenseBeginsNothing(t *testing.T) {
	for _, wait := range []string{"x", "-1s", "1h", "30"} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newMover(t)
			status, answer := askMove(t, s, startPath+"?wait="+wait)
			if status != http.StatusBadRequest || answer.Error == nil || !strings.Contains(answer.Error.Message, "wait") {
				t.Errorf("wait=%s: %d %v", wait, status, answer.Error)
			}
			if all, err := s.Migrations.List(t.Context(), true); err != nil || len(all) > 0 {
				t.Errorf("wait=%s began %v (%v)", wait, all, err)
			}
		})
	}
}

func TestAQuestionForAnOpThatWaitsIsAnsweredWhenTheOpIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newMover(t)
		_, begun := askMove(t, s, startPath)
		status, body := askOf(t, s, http.MethodGet, "/v1/ops/"+begun.Op.ID+"?wait=1m", "")
		var answer moveAnswer
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.Op.State != api.OpDone {
			t.Errorf("%d, the op is %s, want %s (%v)", status, answer.Op.State, api.OpDone, err)
		}
	})
}

// A guest that does not shut down keeps its op open.
func TestAQuestionForAnOpThatGoesOnIsAnsweredInTime(t *testing.T) {
	s := newDisobedient(t)
	id := open(t, s)[0].ID
	running := func(wait string) {
		t.Helper()
		if status, body := askOf(t, s, http.MethodGet, "/v1/ops/"+id+"?wait="+wait, ""); status != http.StatusOK || !strings.Contains(body, `"running"`) {
			t.Errorf("%d %s", status, body)
		}
	}
	began := time.Now()
	running("30ms")
	if waited := time.Since(began); waited < 30*time.Millisecond {
		t.Errorf("it has waited for %s", waited)
	}
	s.opWaits.Store(mostOpWaits) // the next one is answered at once
	began = time.Now()
	running("1m")
	if waited := time.Since(began); waited > 30*time.Second || s.opWaits.Load() != mostOpWaits {
		t.Errorf("one too many has waited for %s", waited)
	}
}
