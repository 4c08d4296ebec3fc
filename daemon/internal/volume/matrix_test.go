// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/internal/api"
)

// subject is a world for the run of one op.
type subject struct {
	*world
	kind string
	in   input
	// done and undone check the world after the op.
	done, undone func(*subject) error
}

// Plans implements optest.World.
func (s *subject) Plans() []op.Plan { return s.newManager(optest.NewRunner(s.journal)).Plans() }

// Op implements optest.World.
func (s *subject) Op() op.Op {
	in, err := json.Marshal(s.in)
	if err != nil {
		panic(err)
	}
	return op.Op{ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa", Kind: s.kind, Keys: []string{"volume/" + s.in.Volume.ID}, Input: in, CreatedAt: time.Unix(1, 0)}
}

// Check implements optest.World.
func (s *subject) Check(state op.State) error {
	if state == op.StateDone {
		return s.done(s)
	}
	return s.undone(s)
}

const matrixVolume = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0002"

func inPoolOfFiles() api.Location {
	return api.Location{Pool: "files", Name: "db.raw", Path: "/files/db.raw", Format: api.FormatRaw, SizeBytes: testSize}
}

// is returns errors unless the volume has this status in the registry ("" for none) and its image
// exists as given.
func (s *subject) is(status api.VolumeStatus, image bool) error {
	var errs []error
	if got := s.registry.volumes[matrixVolume].Status; got != status {
		errs = append(errs, fmt.Errorf("the registry has the volume as %q, want %q", got, status))
	}
	if path := s.in.Volume.Location.Path; s.Exists(path) != image {
		errs = append(errs, fmt.Errorf("an image is at %s: %t, want %t", path, s.Exists(path), image))
	}
	return errors.Join(errs...)
}

func TestMatrixOfCreate(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		return &subject{
			world: newWorld(t), kind: kindCreate,
			in: input{Volume: api.VolumeRegister{
				ID: matrixVolume, Name: "db", Status: api.VolumeCreating, Type: "default", Host: testHost, Location: inPoolOfFiles(),
			}},
			done:   func(s *subject) error { return s.is(api.VolumeAvailable, true) },
			undone: func(s *subject) error { return s.is("", false) },
		}
	}})
}

func TestMatrixOfAdopt(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t)
		must(t, w.CreateImage("/files/db.raw", hvtest.Raw, testSize))
		return &subject{
			world: w, kind: kindAdopt,
			in: input{Volume: api.VolumeRegister{
				ID: matrixVolume, Name: "db", Status: api.VolumeAvailable, Type: "default", Host: testHost, Location: inPoolOfFiles(),
			}},
			done:   func(s *subject) error { return s.is(api.VolumeAvailable, true) },
			undone: func(s *subject) error { return s.is("", true) },
		}
	}})
}

func TestMatrixOfDelete(t *testing.T) {
	for name, l := range map[string]api.Location{
		"in a pool": inPoolOfFiles(),
		"at a path": {Path: "/elsewhere/db.raw", Format: api.FormatRaw, SizeBytes: testSize},
	} {
		t.Run(name, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				w := newWorld(t)
				must(t, w.CreateImage(l.Path, hvtest.Raw, testSize))
				w.registry.volumes[matrixVolume] = api.Volume{
					ID: matrixVolume, Name: "db", Status: api.VolumeAvailable, Host: hostName, Location: l, SizeBytes: testSize,
				}
				return &subject{
					world: w, kind: kindDelete,
					in: input{
						Volume: api.VolumeRegister{ID: matrixVolume, Name: "db", Host: testHost, Location: l},
						Unlink: l.Path,
					},
					done:   func(s *subject) error { return s.is("", false) },
					undone: func(s *subject) error { return s.is(api.VolumeAvailable, true) },
				}
			}})
		})
	}
}
