// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/cmdline"
)

func TestWebPrintsALinkToAPageOfTheOtherSideUntilItIsEnded(t *testing.T) {
	f := newFake(filepath.Join(t.TempDir(), "s"))
	if err := f.script(`GET /v1/status 200 {"status":{"program":"volferryd","host":"hv1"}}`); err != nil {
		t.Fatal(err)
	}
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	defer f.stop()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	app := newApp(stdout, &stderr)
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunContext(ctx, cmdline.Arrange(app, []string{"volferryctl", "web", "--socket", f.socket, "--listen", "127.0.0.1:0"}))
	}()
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	link = strings.TrimSpace(link)

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	key := "" // the page has it, and its scripts send it
	visit := func(url, want string) (page string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Volferry-Page-Key", key)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s answers %s %s, %v; want %s", url, resp.Status, body, err, want)
		}
		return string(body)
	}
	_, key, _ = strings.Cut(visit(link, `name="key" content="`), `name="key" content="`)
	key, _, _ = strings.Cut(key, `"`)
	base, _, _ := strings.Cut(link, "/open")
	visit(base+"/", "<h1>Volferry</h1>")
	visit(base+"/v1/status", `"host":"hv1"`)
	visit(base+"/about", `"command":"volferryctl --socket `+f.socket+`"`)

	cancel() // like Ctrl-C
	if err := <-ended; err != nil {
		t.Errorf("web = %v, stderr: %s", err, &stderr)
	}
}
