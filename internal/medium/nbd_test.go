// SPDX-License-Identifier: Apache-2.0

package medium_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

func TestTheAddressOfAnExportIsReadAsItWasWritten(t *testing.T) {
	for _, want := range []medium.NBDExport{
		{Name: "web", Socket: "/run/nbd.sock"},
		{Socket: "/run/nbd.sock"},
		{Name: "a/b:c@d+e_f-g.h", Socket: "/run/a@b:c+d_e-f.g"},
		{Name: "web", Server: "nbd-1.example:10809"},
		{Server: "10.0.0.7:1"},
		{Name: "a/b:c@d", Server: "n:65535"},
	} {
		got, err := medium.ParseNBD(want.URI())
		if err != nil || got != want || medium.Of(want.URI()).Path {
			t.Errorf("%s is read as %+v, %v", want.URI(), got, err)
		}
	}
}

// An address that QEMU, libvirt and this program could parse differently is refused.
func TestAnAddressThatSomebodyCouldReadDifferentlyIsRefused(t *testing.T) {
	for _, uri := range []string{
		"/run/nbd.sock", "nbd://host/web", "nbd+unix:///web", "nbd+unix://web?socket=/run/s", "nbd+unix:///web?socket=", "nbd+unix:///web?socket=/",
		"nbd+unix:///web?socket=run/s", "nbd+unix:///web?socket=/run/../s", "nbd+unix:///web?socket=/run/s&tls=1", "nbd+unix:///we%62?socket=/run/s",
		"nbd+unix:///web?socket=/run/%73", "nbd+unix:////web?socket=/run/s", "nbd+unix:///web?socket=/run/a,b", "nbd+unix:///a b?socket=/run/s",
		"nbd+unix:///web?socket=/run/s?socket=/run/t", "nbd+unix:///web#x?socket=/run/s", "nbd+unix:///w\x00b?socket=/run/s",
		"nbd://", "nbd:///web", "nbd://host", "nbd://host:10809", "nbd://:10809/web", "nbd://Host:10809/web", "nbd://host:0/web", "nbd://host:010809/web",
		"nbd://host:65536/web", "nbd://host:nbd/web", "nbd://[::1]:10809/web", "nbd://user@host:10809/web", "nbd://host.:10809/web", "nbd://-h:1/web",
		"nbd://host:10809//web", "nbd://host:10809/web?socket=/run/s", "nbd://host:10809/we%62", "nbds://host:10809/web", "nbd://" + strings.Repeat("h", 300) + ":1/web",
		"nbd+unix:///web?socket=/" + strings.Repeat("s", 200), "nbd+unix:///" + strings.Repeat("w", 200) + "?socket=/run/s",
	} {
		if e, err := medium.ParseNBD(uri); api.CodeOf(err) != api.CodeInvalidArgument {
			t.Errorf("%q is %+v, %v", uri, e, err)
		}
	}
}
