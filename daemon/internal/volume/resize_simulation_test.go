// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// byItsConnector is the subject with a connector program that runs.
const byItsConnector = "a device by its connector"

// resizeSubject is a volume with its possible holders.
type resizeSubject struct {
	name string
	with func(w *world, t *testing.T, who holder) api.Volume
	who  []holder
}

// resizeSubjects are the volumes of the simulations.
var resizeSubjects = []resizeSubject{
	{"a file", (*world).withVolume, []holder{nobody, stopped, running, paused}},
	{"a device", (*world).withDevice, []holder{nobody, stopped, running}},
	{byItsConnector, (*world).withConnectors, []holder{nobody, stopped, running}},
	{"a beginning", (*world).withSlice, []holder{nobody, stopped, running}},
}

// resizeTrial is a volume that a daemon resizes under faults.
type resizeTrial struct {
	*world
	daemon *hosttest.Daemon[*Manager]
	vol    api.Volume
	who    holder
	// asks counts the requests, and size is the largest requested size.
	asks int
	size int64
}

func newResizeTrial(t *testing.T, subject int, who holder) *resizeTrial {
	t.Helper()
	s := &resizeTrial{world: newWorld(t), size: testSize, who: who}
	s.withConnectorPool(asItIs)
	s.vol = resizeSubjects[subject].with(s.world, t, who)
	s.moments.Look = s.look
	s.daemon = hosttest.Start(t, hosttest.Program[*Manager]{
		Runner: op.Config{Journal: s.journal, Describe: request.Describe, Context: hv.WithOp, MaxTries: 5},
		New: func(runner *op.Runner) *Manager {
			m := s.newManager(runner)
			m.env.Files = resizedImages{s.images, s.moments}
			return m
		},
	})
	return s
}

// resizedImages are images with a happening when one grows.
type resizedImages struct {
	*hosttest.Images
	moments *hosttest.Moments
}

func (i resizedImages) Grow(ctx context.Context, img hv.Image, sizeBytes int64) error {
	return i.moments.Call("Grow", hv.ErrInUse, func() error { return i.Images.Grow(ctx, img, sizeBytes) })
}

// found returns the volume's sizes: the registry's, the image's (for a slice, the definition's),
// and the guest's, 0 if none runs.
func (s *resizeTrial) found() (registry, inImage, guest int64) {
	s.registry.With(func() { registry = s.registry.volumes[s.vol.ID].SizeBytes })
	info, _ := s.Info(s.vol.Location.Path)
	inImage = info.SizeBytes
	if s.vol.Location.IsSlice() {
		dom, err := s.Domain(context.Background(), guestID)
		if err != nil {
			inImage = registry
		} else if said := dom.ConfigDisk("vdb").Top().SliceBytes; said != 0 {
			inImage = said
		}
	}
	if st, err := s.DiskStats(context.Background(), guestID, "vdb"); err == nil {
		guest = st.CapacityBytes
	}
	return registry, inImage, guest
}

// look reports a violated invariant: the registry has more bytes than the image.
func (s *resizeTrial) look() {
	if registry, inImage, _ := s.found(); registry > inImage {
		s.moments.Wrong("the registry has %d bytes, the image %d", registry, inImage)
	}
}

// ask requests a size until it is answered, then requests it again, and checks both answers.
func (s *resizeTrial) ask(t *testing.T, sizeBytes int64) error {
	t.Helper()
	s.asks++
	s.size = max(s.size, sizeBytes)
	id := fmt.Sprintf("%s-%d", resizeOp, s.asks)
	answer := func() (vol api.Volume, err error) {
		err = hosttest.Insist(t, func(int) (err error) {
			m, _ := s.daemon.Now()
			vol, err = m.Resize(context.Background(), id, s.vol.ID, api.VolumeResize{SizeBytes: sizeBytes})
			return err
		})
		return vol, err
	}
	vol, err := answer()
	registry, inImage, guest := s.found()
	if err == nil && vol.ID != "" && (vol.SizeBytes != sizeBytes || registry != sizeBytes || inImage != sizeBytes || guest != 0 && guest != sizeBytes) {
		t.Errorf("asked for %d, answered %d; the registry has %d, the image %d, the guest %d", sizeBytes, vol.SizeBytes, registry, inImage, guest)
	}
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Details["found_bytes"] != nil && fmt.Sprint(refused.Details["found_bytes"]) != fmt.Sprint(inImage) {
		t.Errorf("the image has %d bytes, and it is said: %v", inImage, err)
	}
	_, runner := s.daemon.Now()
	st, statusErr := runner.Status(context.Background(), id)
	if statusErr != nil || st.State != op.StateDone && st.State != op.StateUndone || err == nil && vol.ID == "" {
		_, err = answer()
		return err
	}
	again, errAgain := answer()
	if diff := cmp.Diff(vol, again) + cmp.Diff(fmt.Sprint(err), fmt.Sprint(errAgain)); diff != "" {
		t.Errorf("asked again, it says something else (-first +again):\n%s", diff)
	}
	return err
}

// settle ends all faults, and checks that the volume has one size and its data, and can be made
// larger.
func (s *resizeTrial) settle(t *testing.T) {
	t.Helper()
	hosttest.Pass(2 * time.Minute)
	s.moments.Cancel()
	hosttest.Pass(10 * time.Minute)
	synctest.Wait()
	s.daemon.WantIdle()
	who := nobody
	if len(s.vol.Attachments) > 0 {
		who = stopped
	}
	if dom, err := s.Domain(t.Context(), guestID); err == nil && dom.State.Active() {
		who = running
	}
	m, _ := s.daemon.Now()
	m.lookAtImages(t.Context(), map[string]string{})
	registry, inImage, guest := s.found()
	isFile := s.vol.Location.Pool == "files" // the guest of a device may not see the size yet
	if slice := s.vol.Location.IsSlice(); !slice && (registry != inImage || isFile && guest != 0 && guest != inImage) {
		t.Errorf("it was looked at: the registry has %d, the image %d, the guest %d", registry, inImage, guest)
	}
	if s.vol.Location.IsSlice() && who == running {
		must(t, s.Destroy(guestID))
		who = stopped
	}
	if err := s.ask(t, s.size+hvtest.BlockSize); err != nil {
		t.Errorf("with everything well: %v", err)
	}
	for _, wrong := range s.moments.Wrongs() {
		t.Error(wrong)
	}
	if s.vol.Location.IsSlice() {
		who, s.vol.Location.ImageBytes = nobody, 0
		must(t, s.Extend(s.vol.Location.Path, s.size)) // the added bytes are not part of the volume
	}
	must(t, s.hasSize(s.vol, who, s.size))
}

func (s *resizeTrial) awayFor(how time.Duration) {
	s.daemon.AwayFor(how, s.hv.SetAway, request.WaitHypervisor)
}

func (s *resizeTrial) registryAwayFor(how time.Duration) {
	s.daemon.AwayFor(how, s.registry.SetDown, request.WaitRegistry)
}

// resizeTroubles are the faults during a resize.
var resizeTroubles = map[string]func(s *resizeTrial){
	"an answer is lost":         func(*resizeTrial) {},
	"libvirt goes away":         func(s *resizeTrial) { s.awayFor(20 * time.Second) },
	"the registry goes away":    func(s *resizeTrial) { s.registryAwayFor(20 * time.Second) },
	"the daemon dies":           func(s *resizeTrial) { s.daemon.Restarts.Go(s.daemon.Restart) },
	"the host is fenced":        func(s *resizeTrial) { s.registry.fence() },
	"the guest ends":            func(s *resizeTrial) { _ = s.Destroy(guestID) },
	"the guest is started":      func(s *resizeTrial) { _ = s.Start(guestID) },
	"the guest is paused":       func(s *resizeTrial) { _ = s.SuspendByUser(guestID) },
	"the journal is full":       func(s *resizeTrial) { s.journal.FailFor(20 * time.Second) },
	"a record is lost":          func(s *resizeTrial) { s.journal.FailNext(false) },
	"a record is said to be so": func(s *resizeTrial) { s.journal.FailNext(true) },
}

func TestAResizeComesToATrueEndWhateverHappensAtEveryCall(t *testing.T) {
	for trouble, do := range resizeTroubles {
		for i, subject := range resizeSubjects {
			for _, who := range subject.who {
				t.Run(fmt.Sprintf("%s, of %s of %s", trouble, subject.name, who), func(t *testing.T) {
					hosttest.BeforeAndAfter(t, func(t *testing.T, after bool) {
						hosttest.EveryCall(t, hosttest.Stride(3), func(t *testing.T, n int) bool {
							s := newResizeTrial(t, i, who)
							s.moments.Arrange(n, hosttest.Happening{After: after, Lose: trouble == "an answer is lost", Do: func() { do(s) }})
							_ = s.ask(t, testSize+hvtest.BlockSize)
							s.settle(t)
							return s.moments.Happened()
						})
					})
				})
			}
		}
	}
}

// Random faults in random order; the seed determines the run.
func TestAVolumeHasOneSizeWhateverHappens(t *testing.T) {
	seeds := 600
	if testing.Short() {
		seeds = 60
	}
	hosttest.EverySeed(t, seeds, func(t *testing.T, rng *rand.Rand) { resizeChaos(t, rng) })
}

func TestOneSeedIsOneRunOfAResize(t *testing.T) {
	hosttest.SameTwice(t, func(t *testing.T, rng *rand.Rand) []string { return resizeChaos(t, rng).Calls() })
}

// resizeChaos requests one size after the other during a sequence of faults.
func resizeChaos(t *testing.T, rng *rand.Rand) *resizeTrial {
	t.Helper()
	troubles := slices.Sorted(maps.Keys(resizeTroubles))
	i := rng.IntN(len(resizeSubjects))
	who := resizeSubjects[i].who
	s := newResizeTrial(t, i, who[rng.IntN(len(who))])
	for range 5 {
		do := resizeTroubles[troubles[rng.IntN(len(troubles))]]
		s.moments.Arrange(1+rng.IntN(20), hosttest.Happening{After: rng.IntN(2) == 0, Lose: rng.IntN(3) == 0, Do: func() { do(s) }})
		_ = s.ask(t, s.size+rng.Int64N(4)*hvtest.BlockSize)
	}
	s.settle(t)
	return s
}
