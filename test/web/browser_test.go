// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long the browser is waited for, on a busy machine.
const patience = 2 * time.Minute

// height is that of the screen.
const height = 900

// browser is a headless Chromium that is spoken to in the DevTools protocol over two
// pipes, so that no port and no library is needed.
type browser struct {
	commands *os.File

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	// problems are errors of scripts and violations of the page's policy.
	problems []string
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// newBrowser starts Chromium, or skips the test where there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("SKIPPED: there is no chromium on this machine; make test-web installs it")
	}
	theirs, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, theirAnswers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirs, theirAnswers} // 3 and 4, as Chromium expects
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), theirAnswers.Close()
	b := &browser{commands: commands, waiting: map[int]chan reply{}}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		b.listen(answers)
	}()
	t.Cleanup(func() {
		_ = b.call(context.WithoutCancel(t.Context()), "", "Browser.close", nil, nil)
		_ = commands.Close()
		_ = cmd.Wait()
		<-heard
	})
	return b
}

// listen reads what the browser says until it has gone.
func (b *browser) listen(answers *os.File) {
	defer answers.Close()
	r := bufio.NewReader(answers)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			for id, ch := range b.waiting {
				close(ch)
				delete(b.waiting, id)
			}
			b.waiting = nil
			return
		}
		var said reply
		if json.Unmarshal(bytes.TrimRight(text, "\x00"), &said) != nil {
			continue
		}
		b.mu.Lock()
		if ch := b.waiting[said.ID]; said.ID != 0 && ch != nil {
			ch <- said
			delete(b.waiting, said.ID)
		}
		if said.Method == "Runtime.exceptionThrown" || said.Method == "Log.entryAdded" && bytes.Contains(said.Params, []byte("Content Security Policy")) {
			b.problems = append(b.problems, string(said.Params))
		}
		b.mu.Unlock()
	}
}

// call sends a command to the browser, or to a page, and reads the result into out.
func (b *browser) call(ctx context.Context, page, method string, params map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return fmt.Errorf("%s: the browser has gone", method)
	}
	b.last++
	id, ch := b.last, make(chan reply, 1)
	b.waiting[id] = ch
	b.mu.Unlock()
	command := map[string]any{"id": id, "method": method, "params": params}
	if page != "" {
		command["sessionId"] = page
	}
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := b.commands.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case said, ok := <-ch:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has gone", method)
		case said.Error != nil:
			return fmt.Errorf("%s: %s", method, said.Error.Message)
		case out == nil:
			return nil
		}
		return json.Unmarshal(said.Result, out)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// tab is a page in the browser.
type tab struct {
	*browser
	session string
}

// open shows url in a new tab.
func (b *browser) open(t *testing.T, url string) *tab {
	t.Helper()
	var target struct {
		ID string `json:"targetId"`
	}
	var attached struct {
		Session string `json:"sessionId"`
	}
	must(t, b.call(t.Context(), "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target))
	must(t, b.call(t.Context(), "", "Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached))
	p := &tab{browser: b, session: attached.Session}
	p.do(t, "Runtime.enable", nil)
	p.do(t, "Log.enable", nil)
	p.do(t, "Page.navigate", map[string]any{"url": url})
	t.Cleanup(func() {
		_ = b.call(context.WithoutCancel(t.Context()), "", "Target.closeTarget", map[string]any{"targetId": target.ID}, nil)
	})
	return p
}

func (p *tab) do(t *testing.T, method string, params map[string]any) {
	t.Helper()
	must(t, p.call(t.Context(), p.session, method, params, nil))
}

// looks sets how wide the page is and whether it is dark.
func (p *tab) looks(t *testing.T, width int, scheme string) {
	t.Helper()
	p.do(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	p.do(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// eval returns what a JavaScript expression is.
func eval[T any](t *testing.T, p *tab, expression string) T {
	t.Helper()
	value, err := tryEval[T](t.Context(), p, expression)
	must(t, err)
	return value
}

func tryEval[T any](ctx context.Context, p *tab, expression string) (value T, err error) {
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	err = p.call(ctx, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out)
	switch {
	case err != nil:
		return value, err
	case out.Exception != nil:
		return value, fmt.Errorf("%s: %s", expression, out.Exception)
	case len(out.Result.Value) > 0:
		err = json.Unmarshal(out.Result.Value, &value)
	}
	return value, err
}

// await returns once the elements that a selector finds have the text in them.
func (p *tab) await(t *testing.T, selector, text string) {
	t.Helper()
	texts := fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent).join('\\n')", selector)
	var (
		got string
		err error
	)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		// It fails while the browser goes from one page to the next.
		if got, err = tryEval[string](t.Context(), p, texts); err == nil && strings.Contains(got, text) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatalf("%s has %q (%v), and never %q", selector, got, err, text)
}

// screenshotsEnv names a directory for pictures of the page.
const screenshotsEnv = "VOLFERRY_SCREENSHOTS"

// screenshot keeps a picture of the whole page, if that is asked for.
func (p *tab) screenshot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv(screenshotsEnv)
	if dir == "" {
		return
	}
	var out struct {
		Data []byte `json:"data"`
	}
	must(t, p.call(t.Context(), p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &out))
	must(t, os.WriteFile(dir+"/"+name+".png", out.Data, 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
