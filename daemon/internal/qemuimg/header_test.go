// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// overlayBytes returns qemu-img's overlay over backing.
func overlayBytes(t testing.TB, backing Image, sizeBytes int64) []byte {
	t.Helper()
	path := t.TempDir() + "/ovl"
	if err := CreateOverlay(t.Context(), path, backing, sizeBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHeaderOfAnOverlayReadsBack(t *testing.T) {
	h, err := parseHeader(bytes.NewReader(overlayBytes(t, Image{Path: "/pool/a,b:c", Format: FormatRaw}, 3<<30+512)))
	if err != nil {
		t.Fatal(err)
	}
	want := &Header{Version: 3, SizeBytes: 3<<30 + 512, BackingFile: "/pool/a,b:c", BackingFormat: FormatRaw, ExtendedL2: true}
	if diff := cmp.Diff(want, h, cmpopts.IgnoreUnexported(Header{})); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
}

func TestCraftedHeadersAreRefused(t *testing.T) {
	good := overlayBytes(t, Image{Path: "/pool/a", Format: FormatRaw}, 1<<20)
	be := binary.BigEndian
	tests := map[string]struct {
		craft func(b []byte) []byte
		want  string
	}{
		"not qcow2":           {func(b []byte) []byte { b[0] = 'X'; return b }, "no qcow2 header"},
		"short":               {func(b []byte) []byte { return b[:90] }, "too short"},
		"version 4":           {func(b []byte) []byte { b[7] = 4; return b }, "version 4"},
		"data file bit":       {func(b []byte) []byte { b[79] |= 1 << 2; return b }, "external data file"},
		"corrupt bit":         {func(b []byte) []byte { b[79] |= 1 << 1; return b }, "marked corrupt"},
		"unknown bit":         {func(b []byte) []byte { b[72] |= 1 << 7; return b }, "unknown incompatible"},
		"encrypted":           {func(b []byte) []byte { b[35] = 1; return b }, "encrypted"},
		"huge clusters":       {func(b []byte) []byte { b[23] = 31; return b }, "cluster bits"},
		"header length":       {func(b []byte) []byte { b[103] = 7; return b }, "length"},
		"negative size":       {func(b []byte) []byte { b[24] = 0x80; return b }, "size"},
		"L1 too long":         {func(b []byte) []byte { b[36] = 0xff; return b }, "L1 table"},
		"backing beyond":      {func(b []byte) []byte { be.PutUint64(b[8:], 1<<40); return b }, "impossible backing"},
		"backing too long":    {func(b []byte) []byte { be.PutUint32(b[16:], 1<<20); return b }, "impossible backing"},
		"backing in header":   {func(b []byte) []byte { be.PutUint64(b[8:], 8); return b }, "impossible backing"},
		"zero in name":        {func(b []byte) []byte { b[be.Uint64(b[8:])] = 0; return b }, "zero byte"},
		"data file extension": {func(b []byte) []byte { be.PutUint32(b[112:], extensionDataFile); return b }, "external data file"},
		"extension too long":  {func(b []byte) []byte { be.PutUint32(b[116:], 1<<31); return b }, "beyond the header"},
		"two backing formats": {func(b []byte) []byte { be.PutUint32(b[128:], extensionBackingFormat); return b }, "twice"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseHeader(bytes.NewReader(tc.craft(bytes.Clone(good))))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// FuzzParseHeader: no input makes the parser panic, and accepted headers keep the promises of
// Header.
func FuzzParseHeader(f *testing.F) {
	good := overlayBytes(f, Image{Path: "/pool/a", Format: FormatRaw}, 1<<20)
	f.Add(good[:1024])
	f.Add(good[:65536])
	f.Add(good[:104])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(bytes.NewReader(b))
		if err != nil {
			return
		}
		if h.SizeBytes < 0 || h.l1Offset < 0 || h.l1Entries < 0 || len(h.BackingFile) > qcow2MaxBacking {
			t.Errorf("accepted %+v", h)
		}
		_, _ = h.empty(bytes.NewReader(b))
	})
}
