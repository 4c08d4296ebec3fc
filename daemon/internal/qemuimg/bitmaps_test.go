// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheBitmapsAndTheLayoutOfAnImageAreRead(t *testing.T) {
	for options, layout := range map[string][]string{
		"compat=1.1": nil,
		"compat=1.1,cluster_size=1M,extended_l2=on,lazy_refcounts=on,compression_type=zstd,refcount_bits=8": {
			"cluster_size=1048576", "refcount_bits=8", "extended_l2=on", "lazy_refcounts=on", "compression_type=zstd",
		},
	} {
		path := t.TempDir() + "/image.qcow2"
		qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, path, "64M")
		want := Properties{Layout: layout}
		for _, name := range []string{"b0", "eight-by", "a longer name, of a checkpoint"} {
			qemuImg(t, "bitmap", "-f", "qcow2", "--add", path, name)
			want.Bitmaps = append(want.Bitmaps, name)
		}
		got, err := ReadProperties(path)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("properties of an image with %s: %v (-want +got):\n%s", options, err, diff)
		}
		for _, name := range want.Bitmaps {
			qemuImg(t, "bitmap", "-f", "qcow2", "--remove", path, name)
		}
		if got, err := ReadProperties(path); err != nil || len(got.Bitmaps) > 0 {
			t.Errorf("an image whose bitmaps were removed has %v (%v)", got.Bitmaps, err)
		}
	}
	old := t.TempDir() + "/old.qcow2"
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "compat=0.10", old, "64M")
	got, err := ReadProperties(old)
	if diff := cmp.Diff(Properties{Layout: []string{"compat=0.10"}}, got); err != nil || diff != "" {
		t.Errorf("properties of an old image: %v (-want +got):\n%s", err, diff)
	}
}

func TestAListOfBitmapsThatCannotBeReadIsNoEmptyList(t *testing.T) {
	path := t.TempDir() + "/image.qcow2"
	qemuImg(t, "create", "-q", "-f", "qcow2", path, "1M")
	qemuImg(t, "bitmap", "-f", "qcow2", "--add", path, "b0")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(good), "\x23\x85\x28\x75") + 8
	for name, craft := range map[string]func(extension []byte){
		"no bitmap at all":   func(b []byte) { binary.BigEndian.PutUint32(b, 0) },
		"too many":           func(b []byte) { binary.BigEndian.PutUint32(b, 1<<31) },
		"more than it lists": func(b []byte) { binary.BigEndian.PutUint32(b, 7) },
		"too long":           func(b []byte) { binary.BigEndian.PutUint64(b[8:], 1<<40) },
		"behind the end":     func(b []byte) { binary.BigEndian.PutUint64(b[16:], 1<<50) },
		"far behind the end": func(b []byte) { binary.BigEndian.PutUint64(b[16:], 1<<63) },
	} {
		bad := append([]byte(nil), good...)
		craft(bad[at:])
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadProperties(path); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
