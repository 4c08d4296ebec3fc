// SPDX-License-Identifier: Apache-2.0

package medium_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const cluster = "5c3b8e1c-58a1-4ac3-8f0e-0e3c6f0f7a11"

func TestTheAddressOfAnRBDImageIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []medium.RBDImage{{cluster, "rbd", "web"}, {cluster, "a.b_c-d+e", "9"}} {
		got, err := medium.ParseRBD(want.URI())
		if err != nil || got != want || !medium.Of(want.URI()).Remote || medium.Of(want.URI()).Path || medium.Of(want.URI()).Check(want.URI()) != nil {
			t.Errorf("%s is read as %+v, %v", want.URI(), got, err)
		}
	}
}

func TestAnRBDAddressThatSomebodyCouldReadDifferentlyIsRefused(t *testing.T) {
	for _, uri := range []string{
		"rbd:rbd/web", "rbd://rbd/web", "rbd://" + cluster, "rbd://" + cluster + "/rbd", "rbd://" + cluster + "/rbd/", "rbd://" + cluster + "//web", "rbd://" + cluster + "/rbd/ns/web",
		"rbd://" + strings.ToUpper(cluster) + "/rbd/web", "rbd://" + cluster[1:] + "/rbd/web", "rbd://" + strings.ReplaceAll(cluster, "-", "a") + "/rbd/web", "rbd://mon:6789/rbd/web",
		"rbd://" + cluster + "/rbd/web@snap", "rbd://" + cluster + "/rbd/web:id=admin", "rbd://" + cluster + "/-p/web", "rbd://" + cluster + "/rbd/--help", "rbd://" + cluster + "/rbd/we%62",
		"rbd://" + cluster + "/rbd/w eb", "rbd://" + cluster + "/rbd/web?conf=/etc/x", "rbd://" + cluster + "/rbd/" + strings.Repeat("w", 97),
	} {
		if i, err := medium.ParseRBD(uri); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("%q is %+v, %v", uri, i, err)
		}
	}
}
