// SPDX-License-Identifier: Apache-2.0

package pools_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/connectortest"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// copying returns a host with a pool that has the volumes a and b, and may copy between them.
func copying(t *testing.T, copies bool) (*pools.Host, connectortest.Fake) {
	t.Helper()
	h, f := newHost(t, "")
	f.Copies = copies
	h.Run = f.Run
	for _, name := range []string{"a", "b"} {
		if _, err := h.CreateVolume(forOp(t, "op-1"), "fast", name, "raw", size, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "a.raw"), append([]byte("what is in it"), make([]byte, size-13)...), 0o600); err != nil {
		t.Fatal(err)
	}
	return h, f
}

func at(name string) string { return connectortest.Directory + "/" + name }

func TestAPoolCopiesBetweenTwoOfItsVolumes(t *testing.T) {
	h, f := copying(t, true)
	ctx := forOp(t, "op-2")
	c, err := h.FindDeviceCopy(ctx, at("a"), at("b"))
	if err != nil || !c.Offered || c.Pool != "fast" || c.SizeBytes != size || c.GranularityBytes != connectortest.GranularityBytes {
		t.Fatalf("found %+v, %v", c, err)
	}
	for range 2 {
		if until, err := h.CopyDevice(ctx, *c, 0, size/2); until != size/2 || err != nil {
			t.Errorf("it has copied up to %d, %v", until, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(f.Dir, "b.raw")); err != nil || string(text[:13]) != "what is in it" {
		t.Errorf("b has %q, %v", text[:13], err)
	}
	for _, other := range []string{at("none"), "/files/b", "/dev/other/b", at("a")} {
		if c, err := h.FindDeviceCopy(ctx, at("a"), other); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("to %s: %+v, %v", other, c, err)
		}
	}
}

// TestACopyIsOfferedOnlyWhereThePoolDoes, between volumes of one size; an earlier request may be
// repeated in any case.
func TestACopyIsOfferedOnlyWhereThePoolDoes(t *testing.T) {
	h, _ := copying(t, false)
	if c, err := h.FindDeviceCopy(t.Context(), at("a"), at("b")); err != nil || c.Offered {
		t.Errorf("of a pool that does not copy: %+v, %v", c, err)
	}
	h, _ = copying(t, true)
	if err := h.ExtendVolume(forOp(t, "op-2"), "fast", "b", 2*size); err != nil {
		t.Fatal(err)
	}
	if c, err := h.FindDeviceCopy(t.Context(), at("a"), at("b")); err != nil || c.Offered {
		t.Errorf("of volumes of two sizes: %+v, %v", c, err)
	}
}

// TestWhatACopyMeans: a connector's error is an answer, and no other failure is.
func TestWhatACopyMeans(t *testing.T) {
	says := func(answer connector.Answer, err error) func(context.Context, string, connector.Request) (connector.Answer, error) {
		return func(context.Context, string, connector.Request) (connector.Answer, error) { return answer, err }
	}
	for name, c := range map[string]struct {
		run        pools.Run
		unanswered bool
		want       error
		code       api.Code
	}{
		"unsupported": {run: says(connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "no")), want: hv.ErrUnsupported},
		"busy":        {run: says(connector.Answer{}, connector.Errorf(connector.CodeBusy, "no")), want: hv.ErrBusy},
		"failed":      {run: says(connector.Answer{}, connector.Errorf(connector.CodeFailed, "no")), code: api.CodeHypervisorUnavailable},
		"it died":     {run: says(connector.Answer{}, &connector.BrokenError{Verb: connector.VerbCopy, Err: errors.New("killed")}), unanswered: true},
		"odd":         {run: says(connector.Answer{CopiedToBytes: 512}, nil), unanswered: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := copying(t, true)
			found, err := h.FindDeviceCopy(t.Context(), at("a"), at("b"))
			if err != nil {
				t.Fatal(err)
			}
			h.Run = c.run
			_, err = h.CopyDevice(forOp(t, "op-2"), *found, 0, size)
			if errors.Is(err, hv.ErrNoAnswer) != c.unanswered || c.want != nil && !errors.Is(err, c.want) || c.code != "" && api.CodeOf(err) != c.code {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestNothingIsCopiedBetweenOtherDevices than the devices of FindDeviceCopy, and an answer about
// other devices is no answer.
func TestNothingIsCopiedBetweenOtherDevices(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		for _, during := range []bool{false, true} {
			h, f := copying(t, true)
			c, err := h.FindDeviceCopy(t.Context(), at("a"), at("b"))
			if err != nil {
				t.Fatal(err)
			}
			replace := func() {
				if err := f.AddVolume(name, "FAKE-another", size); err != nil {
					t.Fatal(err)
				}
			}
			asked := []string{}
			h.Run = func(ctx context.Context, pool string, in connector.Request) (connector.Answer, error) {
				asked = append(asked, in.Verb)
				out, err := f.Run(ctx, pool, in)
				if during {
					replace()
				}
				return out, err
			}
			if !during {
				replace()
			}
			_, err = h.CopyDevice(forOp(t, "op-2"), *c, 0, size)
			if err == nil || slices.Contains(asked, connector.VerbCopy) != during || errors.Is(err, hv.ErrNoAnswer) != during {
				t.Errorf("%s is replaced, during the copy: %v: it was asked for %v and %v came of it", name, during, asked, err)
			}
		}
	}
}
