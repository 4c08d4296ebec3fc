// SPDX-License-Identifier: Apache-2.0

package qemuconf

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLibvirtGivesImagesUnlessItIsToldNotTo(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "qemu.conf")
	if gives, err := GivesImages(conf); err != nil || !gives {
		t.Errorf("without settings: %v, %v", gives, err)
	}
	for text, want := range map[string]bool{
		"": true, "user = \"root\"\n#dynamic_ownership = 0\n": true, "dynamic_ownership = 1\n": true, "dynamic_ownership = 0": false,
		"\n dynamic_ownership=0 # NFS\nremember_owner = 1\n": false, "dynamic_ownership = \"0\"\n": false,
	} {
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if gives, err := GivesImages(conf); err != nil || gives != want {
			t.Errorf("%q: %v, %v", text, gives, err)
		}
	}
	if _, err := GivesImages(t.TempDir()); err == nil {
		t.Error("settings that cannot be read are taken for the default")
	}
}
