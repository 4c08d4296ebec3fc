// SPDX-License-Identifier: Apache-2.0

package rbd_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const web = "rbd://" + id + "/rbd/web"

// theKey is a decoded Ceph key: a type, a time, a length, and the key.
const theKey = "\x01\x00timetime\x07\x00the key"

// fakeReach is a cluster with one image.
type fakeReach struct {
	watched func() bool
	keys    []string
}

// fakePool is a cluster with images that can be made and removed. lost selects the changes with a
// lost answer.
type fakePool struct {
	fakeReach

	images map[string]rbd.Info
	made   int
	lost   func(rbd.Change) bool
}

func (f *fakePool) Look(_ context.Context, image medium.RBDImage, _ *os.File) (rbd.Info, error) {
	info, is := f.images[image.Name]
	if !is {
		return info, unix.ENOENT
	}
	return info, nil
}

func (f *fakePool) Watchers(ctx context.Context, image medium.RBDImage, key *os.File) ([]string, error) {
	_, err := f.Look(ctx, image, key)
	return nil, err
}

func (f *fakePool) Change(_ context.Context, image medium.RBDImage, change rbd.Change, _ *os.File) error {
	info := f.images[image.Name]
	name := cmp.Or(change.RenameTo, image.Name)
	if _, is := f.images[name]; is && !change.Remove {
		return unix.EEXIST
	}
	if change.CreateBytes == 0 && info.ID != change.ID {
		return errors.New("it is another image")
	}
	delete(f.images, image.Name)
	switch {
	case change.CreateBytes > 0:
		f.made++
		f.images[name] = rbd.Info{SizeBytes: change.CreateBytes, ID: "made " + strconv.Itoa(f.made)}
	case change.RenameTo != "":
		f.images[name] = info
	}
	if f.lost != nil && f.lost(change) {
		return unix.EEXIST // as for a repeated request
	}
	return nil
}

func TestAnImageIsMadeWithItsIDKnownOrNotAtAll(t *testing.T) {
	refused := errors.New("the journal takes nothing")
	stranger := map[string]rbd.Info{"web": {SizeBytes: 1, ID: "theirs"}}
	made := map[string]rbd.Info{"web": {SizeBytes: 512, ID: "made 1"}}
	for name, c := range map[string]struct {
		there     map[string]rbd.Info
		lost      func(rbd.Change) bool
		whole     error
		err       error
		want      map[string]rbd.Info
		wantWhole string
	}{
		"made":                             {want: made, wantWhole: "made 1"},
		"made, and the answer is lost":     {lost: func(c rbd.Change) bool { return c.CreateBytes > 0 }, want: made, wantWhole: "made 1"},
		"its id is not taken down":         {whole: refused, err: refused, want: map[string]rbd.Info{}, wantWhole: "made 1"},
		"there is another one of its name": {there: stranger, err: unix.EEXIST, want: stranger, wantWhole: "made 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakePool{images: map[string]rbd.Info{}, lost: c.lost}
			maps.Copy(f.images, c.there)
			client := clientOf(&f.fakeReach)
			client.Reach = f
			told := ""
			err := client.Make(t.Context(), web, ".volferry-x", 512, func(id string) error {
				if _, is := f.images["web"]; is && c.there == nil {
					t.Error("it has its name before its id is taken down")
				}
				told = id
				return c.whole
			})
			if !errors.Is(err, c.err) || told != c.wantWhole {
				t.Errorf("%v, and the id that was told is %q", err, told)
			}
			if diff := gocmp.Diff(c.want, f.images); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
			for range 2 {
				if err := client.Remove(t.Context(), web, "made 1"); (err != nil) != (c.there != nil) {
					t.Error(err)
				}
			}
			if len(f.images) != len(c.there) {
				t.Errorf("removed, and there: %v", f.images)
			}
		})
	}
}

func (f *fakeReach) Look(_ context.Context, _ medium.RBDImage, key *os.File) (rbd.Info, error) {
	again, err := os.Open("/proc/self/fd/" + fd(key)) // as a program does
	if err != nil {
		return rbd.Info{}, err
	}
	text, err := io.ReadAll(again)
	f.keys = append(f.keys, string(text))
	return rbd.Info{SizeBytes: 512, ID: "1"}, errors.Join(err, again.Close())
}

func (f *fakeReach) Watchers(context.Context, medium.RBDImage, *os.File) ([]string, error) {
	if f.watched() {
		return []string{"10.0.0.9:0/1"}, nil
	}
	return nil, nil
}

func (*fakeReach) Check(context.Context, string, *os.File) error { return nil }

func (*fakeReach) Snapshot(context.Context, medium.RBDImage, rbd.SnapshotQuery, *os.File) (rbd.Snapshot, error) {
	return rbd.Snapshot{}, nil
}

func (*fakeReach) Change(context.Context, medium.RBDImage, rbd.Change, *os.File) error {
	return errors.New("it is not changed")
}

func (*fakeReach) Dial(context.Context, medium.RBDImage, bool, *os.File) (net.Conn, error) {
	return nil, errors.New("it is not served")
}

func clientOf(f *fakeReach) *rbd.Client {
	return &rbd.Client{
		Clusters: rbd.Clusters{id: cluster(nil)}, Reach: f,
		Secret: func(_ context.Context, id string) ([]byte, error) {
			if id != secret {
				return nil, errors.New("another secret was asked for")
			}
			return []byte(theKey), nil
		},
	}
}

func TestAProgramReadsTheKeyFromTheFileThatItIsGivenAsOftenAsItWants(t *testing.T) {
	f := &fakeReach{}
	for range 2 {
		if info, err := clientOf(f).Look(t.Context(), web); err != nil || info.ID != "1" {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	want := base64.StdEncoding.EncodeToString([]byte(theKey))
	if len(f.keys) != 2 || f.keys[0] != want || f.keys[1] != want {
		t.Errorf("it reads %q, want %q", f.keys, want)
	}
	if _, err := clientOf(f).Look(t.Context(), "rbd://00000000-58a1-4ac3-8f0e-0e3c6f0f7a11/rbd/web"); api.CodeOf(err) != api.CodePermissionDenied || len(f.keys) != 2 {
		t.Errorf("a cluster that is not listed: %v", err)
	}
}

// For a cluster, a dead client has the image open for half a minute more.
func TestWhoHasAnImageIsWaitedForAsLongAsItMayBeDead(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		has   bool
	}{
		"nobody": {0, false}, "a dead client": {30 * time.Second, false}, "a living one": {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				f := &fakeReach{watched: func() bool { return time.Since(began) < c.lasts }}
				who, err := clientOf(f).Holders(t.Context(), web, nil)
				if err != nil || (who != "") != c.has || time.Since(began) > time.Minute {
					t.Errorf("after %v: %q, %v", time.Since(began), who, err)
				}
				asked := time.Now()
				began = asked
				bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				who, err = clientOf(f).Holders(bounded, web, nil)
				if err != nil || (who != "") != (c.lasts > 0) || time.Since(asked) > 0 {
					t.Errorf("for somebody who waits, after %v: %q, %v", time.Since(asked), who, err)
				}
			})
		})
	}
}

// Guests of this host are clients too, and a cluster does not report the owner of a client.
func TestWhoHasAnImageBesideTheGuestsIsToldByTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeReach{watched: func() bool { return true }}
		count := func(least, most int, err error) rbd.Count {
			return func(context.Context) (int, int, error) { return least, most, err }
		}
		for _, c := range []struct {
			least, most int
			has         string
		}{{0, 0, "10.0.0.9"}, {1, 1, ""}, {0, 2, ""}, {2, 2, "lost"}} {
			who, err := clientOf(f).Holders(t.Context(), web, count(c.least, c.most, nil))
			if err != nil || (who != "") != (c.has != "") || !strings.Contains(who, c.has) {
				t.Errorf("with %d to %d of ours: %q, %v", c.least, c.most, who, err)
			}
		}
		if _, err := clientOf(f).Holders(t.Context(), web, count(0, 0, io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("uncounted: %v", err)
		}
		began := time.Now()
		starts := func(context.Context) (least, most int, err error) { // one of our guests starts during the look
			n := min(1, int(time.Since(began)/time.Second))
			return n, n, nil
		}
		if who, err := clientOf(f).Holders(t.Context(), web, starts); err != nil || who != "" || time.Since(began) > 2*time.Second {
			t.Errorf("while a guest starts: %q, %v", who, err)
		}
	})
}

func fd(f *os.File) string {
	raw, err := f.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var n uintptr
	_ = raw.Control(func(fd uintptr) { n = fd })
	return strconv.Itoa(int(n))
}

// TestASecretThatIsNoKeyIsRefusedAndNotShown: Ceph's libraries print values that they cannot
// decode, and the value may be a key in another form.
func TestASecretThatIsNoKeyIsRefusedAndNotShown(t *testing.T) {
	for name, value := range map[string]string{
		"encoded twice": base64.StdEncoding.EncodeToString([]byte(theKey)),
		"cut off":       theKey[:len(theKey)-1],
		"none":          "",
	} {
		f := &fakeReach{}
		c := clientOf(f)
		c.Secret = func(context.Context, string) ([]byte, error) { return []byte(value), nil }
		_, err := c.Look(t.Context(), web)
		if err == nil || len(f.keys) > 0 || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v, and %d programs have read it", name, err, len(f.keys))
		}
	}
}
