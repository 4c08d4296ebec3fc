// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// encryptedGuest has src as a container, under an unused overlay with the same encryption.
func encryptedGuest(t *testing.T) (f *hvtest.Fake, container, over hv.Image) {
	t.Helper()
	const secret = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"
	container, over = src, overlay
	container.LUKSSecret, over.LUKSSecret = secret, secret
	f = hvtest.New()
	f.SetStep(0)
	must(t,
		f.CreateImage(src.Path, src.Format, size),
		f.WriteBlock(src.Path, 0, 10),
		f.Encrypt(src.Path, secret),
		f.CreateImage(dst.Path, dst.Format, size+hvtest.HeaderBytes),
		f.CopyImage(container, dst),
		f.CreateOverlay(over.Path, container, size),
		f.Define(hv.Domain{ID: domain, Name: "guest", Config: []hv.Disk{
			{Target: "vda", Device: "disk", Chain: []hv.Image{container}, Terminated: true},
		}}),
		f.Start(domain),
	)
	return f, container, over
}

func TestAnEncryptedVolumeIsWrittenUnderItsOverlayAndFoldedIntoACopyOfItsContainer(t *testing.T) {
	f, container, over := encryptedGuest(t)
	to := dst
	to.LUKSSecret = container.LUKSSecret
	must(t, f.PutOverlay(t.Context(), domain, "vda", over), f.GuestWrite(domain, "vda", 1, 11), f.BlockCopy(t.Context(), domain, "vda", to, hv.BlockCopyOptions{Shallow: true}))
	f.Step(10)
	f.Step(10)
	must(t, f.Pivot(t.Context(), domain, "vda"))
	content, err := f.Read([]hv.Image{to})
	must(t, err)
	if len(content) != 2 || content[0] != 10 || content[1] != 11 {
		t.Errorf("the guest sees %v", content)
	}
	f.AssertNoWriteLost(t)
}

// violations records failures, and fails no test.
type violations struct {
	testing.TB
	text string
}

func (v *violations) Helper() {}

func (v *violations) Errorf(format string, args ...any) { v.text += fmt.Sprintf(format+"\n", args...) }

func TestAGuestThatWouldWriteInTheClearIsNoticed(t *testing.T) {
	for name, write := range map[string]func(f *hvtest.Fake, container, over hv.Image){
		"an overlay in the clear": func(f *hvtest.Fake, _, _ hv.Image) {
			must(t, f.Remove(overlay.Path), f.CreateOverlay(overlay.Path, src, size))
			_ = f.PutOverlay(t.Context(), domain, "vda", overlay)
		},
		"a definition with one": func(f *hvtest.Fake, container, _ hv.Image) {
			must(t, f.Remove(overlay.Path), f.CreateOverlay(overlay.Path, src, size), f.Stop(domain),
				f.SetConfigChain(t.Context(), domain, "vda", []hv.Image{overlay, container}))
			_ = f.Start(domain)
		},
		"a job into a copy without the secret": func(f *hvtest.Fake, _, over hv.Image) {
			must(t, f.PutOverlay(t.Context(), domain, "vda", over))
			_ = f.BlockCopy(t.Context(), domain, "vda", dst, hv.BlockCopyOptions{Shallow: true})
		},
	} {
		f, container, over := encryptedGuest(t)
		write(f, container, over)
		probe := &violations{TB: t}
		f.AssertClean(probe)
		if !strings.Contains(probe.text, "in the clear") {
			t.Errorf("%s: not noticed", name)
		}
	}
}
