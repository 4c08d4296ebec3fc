// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// live is in the page once it has read everything and follows the trail.
const live = "Live"

func show(t *testing.T, b *browser, s *side) (*tab, func()) {
	t.Helper()
	link, end := serve(t, s)
	return b.open(t, link), end
}

func (p *tab) awaitAll(t *testing.T, selector string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		p.await(t, selector, text)
	}
}

// One browser for all: it takes seconds to start.
func TestPageInABrowser(t *testing.T) {
	b := newBrowser(t)
	for name, test := range map[string]func(*testing.T, *browser){
		"ARegistrysPageHasTheWholeSite":           wholeSite,
		"ItFitsScreensWideAndNarrowLightAndDark":  fits,
		"AnEventChangesThePage":                   eventChanges,
		"ATextIsNeverTakenForHTML":                textsStayTexts,
		"ALostConnectionIsShownAndCaughtUp":       catchesUp,
		"ALongTrailIsReadFromItsEnd":              readsTheEnd,
		"ADaemonsPageLeavesOutWhatItDoesNotHave":  oneHost,
		"ItSaysSoWhenTheCommandHasEnded":          commandEnded,
		"TablesHaveHeadersAndProgressIsReadAloud": accessible,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, b)
			b.mu.Lock()
			defer b.mu.Unlock()
			// That the other side is away is no error of a script.
			if problems := b.problems; len(problems) > 0 {
				t.Errorf("the browser complains: %s", strings.Join(problems, "\n"))
				b.problems = nil
			}
		})
	}
}

func wholeSite(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, registry(), trail(40)))
	p.await(t, "#link", live)
	p.awaitAll(t, "#open-moves", "db-data", "old/db-data → fast/db-data", "40% · 80GiB of 200GiB · 310MiB/s · 6m36s left", "start 38ms", "5m18s, 620MiB")
	p.awaitAll(t, "#ended-moves", "erp-data", "completed", "start 38ms, switch 61ms", "cancelled")
	p.awaitAll(t, "#drain-table", "old", "running", "34% · 480GiB of 1.4TiB", "2 moved, 1 moving, 1 pending, 1 skipped")
	p.awaitAll(t, "#host-table", "hv1", "up", "suspect", "fenced", "v0.8.2", "7m ago")
	p.awaitAll(t, "#pool-table", "42% · 2.3TiB free of 4TiB", "not active", "netfs")
	p.awaitAll(t, "#event-table", "db-data at web1", "host hv4", "suspect → fenced, PDU outlet 7 off, seen", "migration of db-data")
	p.awaitAll(t, "#findings", "The move of volume web1-vda has stopped", "volferryctl --socket "+"/", "volume which web1-vda",
		"The guest of volume mail stands still", "migration complete a-mail b-mail", "migration cancel a-mail", "Host hv3 is silent", "The drain of pool old leaves 1 volume there",
		"quorum: cannot migrate volume quorum: it has 2 attachments", "Pool images of host hv2 is nearly full", "Instance backup is not as it was left", "good for 12 more days")
	p.await(t, `#findings li[data-line$=" instance repair backup"]`, "Copy") // the cure, not what shows it
	p.await(t, "#attention-summary", "5 things to act on, 5 to look at.")
	if title := eval[string](t, p, "document.title"); title != "(5) Volferry: registry" {
		t.Errorf("the title is %s", title)
	}
}

func fits(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, registry(), trail(40)))
	p.await(t, "#link", live)
	for _, width := range []int{1280, 700, 400, 320} {
		for _, scheme := range []string{"light", "dark"} {
			p.looks(t, width, scheme)
			p.await(t, "#event-table", "migration of db-data")
			if wide := eval[int](t, p, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("at %d pixels it is %d wide: %s", width, wide, eval[string](t, p,
					fmt.Sprintf("[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > %d).map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40)).slice(0, 5).join('; ')", width)))
			}
			ground := eval[string](t, p, "getComputedStyle(document.body).backgroundColor")
			if dark := ground == "rgb(18, 22, 27)"; dark != (scheme == "dark") {
				t.Errorf("in %s the ground is %s", scheme, ground)
			}
			p.screenshot(t, fmt.Sprintf("registry-%d-%s", width, scheme))
		}
	}
}

func eventChanges(t *testing.T, b *browser) {
	s := newSide(t, registry(), trail(40))
	p, _ := show(t, b, s)
	p.await(t, "#link", live)
	p.await(t, "#moves-summary", "3 moves under way: db-data 40%")
	p.await(t, "#ended-moves", "erp-data")
	eval[bool](t, p, "window.kept = document.querySelector('#open-moves progress'); true")

	s.set("migrations", moves(150))
	s.tell(api.Event{At: ago(0), What: "migration.transition", Object: "migration/" + copying, From: "copying", To: "copying", Host: "hv1"})
	p.await(t, "#moves-summary", "db-data 70%")
	p.await(t, "#open-moves", "75% · 150GiB")
	if !eval[bool](t, p, "window.kept === document.querySelector('#open-moves progress') && window.kept.position === 0.75") {
		t.Error("the row was made anew")
	}

	done := move(copying, "db-data", "hv1", api.MigrationCompleted)
	done.StallMS.Switch, done.FinishedAt = ms(74), before(0)
	s.set("migrations/"+copying, done)
	s.set("migrations", moves(150)[1:])
	s.tell(api.Event{At: ago(0), What: "migration.transition", Object: "migration/" + copying, From: "completing", To: "completed", Host: "hv1"})
	p.await(t, "#ended-moves tbody tr:first-child", "db-data")
	p.await(t, "#ended-moves tbody tr:first-child", "switch 74ms")
	p.await(t, "#event-table tbody tr:first-child", "completing → completed")
}

func textsStayTexts(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, registry(), trail(40)))
	p.await(t, "#link", live)
	p.await(t, "#findings", "Volume "+nasty+" is in error")
	p.await(t, "#event-table", nasty)
	if n := eval[int](t, p, "document.images.length"); n > 0 {
		t.Errorf("the page has %d images", n)
	}
	commands := eval[[]string](t, p, "[...document.querySelectorAll('code')].map((e) => e.textContent)")
	if i := slices.IndexFunc(commands, func(c string) bool { return strings.Contains(c, "onerror") }); i >= 0 {
		t.Errorf("a command has the name in it: %s", commands[i])
	}
	// The browser would refuse it, too.
	if !eval[bool](t, p, "(() => { try { document.body.innerHTML = 'x'; return false; } catch { return true; } })()") {
		t.Error("the page's policy takes a text for HTML")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = slices.DeleteFunc(b.problems, func(s string) bool { return strings.Contains(s, "TrustedHTML") })
}

func catchesUp(t *testing.T, b *browser) {
	s := newSide(t, registry(), trail(40))
	p, _ := show(t, b, s)
	p.await(t, "#link", live)
	p.await(t, "#event-table tbody tr:first-child", "needs_operator")

	s.stop()
	p.await(t, "#link", "Connection lost at ")
	p.await(t, "#link", "there is no such socket")
	p.await(t, "#host-table", "hv1") // as it was
	for i := range 3 {
		s.tell(api.Event{At: ago(0), What: "note", Object: fmt.Sprintf("policy/while-away-%d", i)})
	}
	s.start(t)
	p.await(t, "#link", live)
	p.await(t, "#event-table tbody tr:first-child", "while-away-2")
	seqs := eval[[]string](t, p, "[...document.querySelectorAll('#event-table tbody th')].map((e) => e.textContent)")
	if len(seqs) != 43 || len(slices.Compact(seqs)) != 43 || seqs[0] != "43" || seqs[42] != "1" {
		t.Errorf("the trail is %v", seqs)
	}
}

func readsTheEnd(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, registry(), trail(54321)))
	p.await(t, "#link", live)
	p.await(t, "#event-table tbody tr:first-child", "54321")
	p.await(t, "#event-table tbody tr:last-child", "54122")
}

func oneHost(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, daemon(), nil))
	p.await(t, "#link", "Connected")
	p.await(t, "#target", "volferryd v0.9.0 of host hv1")
	p.awaitAll(t, "#findings", "libvirt: libvirt does not answer", "systemctl status libvirtd", "hook: libvirt's hook is not installed", "Operation attach of mail has stopped", "op show o-1")
	p.await(t, "#open-moves", "db-data")
	hidden := eval[[]string](t, p, "[...document.querySelectorAll('section')].filter((e) => e.hidden).map((e) => e.id)")
	if slices.Sort(hidden); strings.Join(hidden, " ") != "drains trail" {
		t.Errorf("left out are %v", hidden)
	}
	p.looks(t, 1280, "light")
	p.screenshot(t, "daemon-1280-light")
}

func commandEnded(t *testing.T, b *browser) {
	p, end := show(t, b, newSide(t, registry(), trail(40)))
	p.await(t, "#link", live)
	end()
	p.await(t, "#link", "Connection lost at ")
	p.await(t, "#link", "volferryctl web does not answer")
}

func accessible(t *testing.T, b *browser) {
	p, _ := show(t, b, newSide(t, registry(), trail(40)))
	p.looks(t, 400, "light") // where rows are cards
	p.await(t, "#link", live)
	p.await(t, "#ended-moves", "erp-data")
	for what, expression := range map[string]string{
		"tables without headers of columns":   "[...document.querySelectorAll('table')].filter((t) => t.querySelectorAll('thead th[scope=col]').length < 4)",
		"rows without a header":               "[...document.querySelectorAll('tbody tr')].filter((r) => !r.querySelector('th[scope=row]'))",
		"progresses and meters without names": "[...document.querySelectorAll('progress, meter')].filter((e) => !e.getAttribute('aria-label'))",
		"buttons without names":               "[...document.querySelectorAll('button')].filter((e) => !e.getAttribute('aria-label'))",
		"sections without headings":           "[...document.querySelectorAll('section')].filter((e) => !e.querySelector('h2'))",
		"cells that lost their role":          "[...document.querySelectorAll('td, th')].filter((e) => !e.getAttribute('role'))",
		"summaries that are not read aloud":   "['link', 'moves-summary', 'attention-summary'].filter((id) => document.getElementById(id).getAttribute('role') !== 'status')",
		"elements that are given twice":       "[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)",
	} {
		if n := eval[int](t, p, "("+expression+").length"); n > 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
	p.do(t, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Tab", "windowsVirtualKeyCode": 9})
	p.do(t, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": "Tab", "windowsVirtualKeyCode": 9})
	if outline := eval[string](t, p, "getComputedStyle(document.activeElement).outlineStyle"); outline != "solid" {
		t.Errorf("what has the focus is shown by an outline that is %s", outline)
	}
}

// The picture in the documentation. TMPDIR is where its socket is.
func TestPictureForTheDocumentation(t *testing.T) {
	if os.Getenv(screenshotsEnv) == "" {
		t.Skip("SKIPPED: " + screenshotsEnv + " names no directory for it")
	}
	b, site := newBrowser(t), registry()
	site["status"] = api.Status{Program: "volferry-registry", Version: "v0.9.0"}
	site["hosts"], site["pools"], site["volumes"] = hosts()[:3], pools()[:4], volumes()[:3]
	delete(site, "instances")
	site["migrations"] = moves(80)[:2]
	site["migrations?all"] = ended()[:2]
	s := newSideAt(t, filepath.Join(os.TempDir(), "registry.sock"), site, trail(6)[:4])
	p, _ := show(t, b, s)
	p.looks(t, 1100, "light")
	p.await(t, "#link", live)
	p.await(t, "#ended-moves", "erp-data")
	p.await(t, "#event-table", "migration of db-data")
	p.screenshot(t, "watch-in-a-browser")
}
