// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
)

func TestADomainOfAnyNameHasVolumesWithNamesThatVolumesMayHave(t *testing.T) {
	allowed := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`) // the registry's rule
	for name, want := range map[string]string{
		"web":                    "web-vda",
		"web-1_a.b":              "web-1_a.b-vda",
		"web server":             "web-server-10000000-vda",
		"Büro":                   "B-ro-10000000-vda",
		"日本":                     "10000000-vda",
		".hidden":                "hidden-10000000-vda",
		"-":                      "10000000-vda",
		strings.Repeat("x", 300): strings.Repeat("x", domainNameBytes) + "-10000000-vda",
	} {
		got := volumeName(&hv.Domain{ID: "10000000-0000-4000-8000-000000000001", Name: name}, "vda")
		if got != want || !allowed.MatchString(got) {
			t.Errorf("domain %q: volume %q, want %q", name, got, want)
		}
	}
}

func TestTwoDomainsWhoseNamesLookAlikeHaveDifferentVolumes(t *testing.T) {
	a := volumeName(&hv.Domain{ID: domainA, Name: "web server"}, "vda")
	b := volumeName(&hv.Domain{ID: domainB, Name: "web-server"}, "vda")
	c := volumeName(&hv.Domain{ID: strings.Repeat("3", 8) + domainA[8:], Name: "web/server"}, "vda")
	if a == b || b == c || a == c {
		t.Errorf("they are called %s, %s and %s", a, b, c)
	}
}
