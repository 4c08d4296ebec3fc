// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A phrase is refused by STYLE.md, which has a better one for it.
type phrase struct {
	name    string
	first   string // its words, of which a passage has one
	second  string // words, one of which follows; empty if the first one is enough
	example string // of STYLE.md
}

var phrases = []phrase{
	{"says-whether", "say says said saying", "whether", "isOpen says whether the image is open"},
	{"what-is", "what", "is was are were has had have", "what was copied"},
	{"that-of", "that those", "of", "the path is that of the source"},
	{"one-that", "one ones", "that which who", "one that a guest uses"},
	{"of-which", "of by in to for from with at on under through behind beside", "which whom whose", "a volume of which the size is unknown"},
	{"word", "'s", "word", "dst has changed by libvirt's word"},
	{"hears", "hear hears heard", "", "the daemon hears of the abort"},
	{"beside", "beside behind", "", "a file beside the image"},
	{"anew", "anew", "", "the copy is made anew"},
	{"let-go", "let lets letting", "go", "the job is let go"},
	{"stands-still", "stand stands stood standing", "still", "the copy stands still"},
	{"nobody", "nobody somebody whoever whose", "", "nobody holds the lease"},
	{"mend", "mend mends mended mending", "", "mend a lock"},
	{"former", "former formerly", "", "the former image"},
}

// phraseBeginning has the phrases by their first words.
var phraseBeginning = func() map[string][]phrase {
	begun := map[string][]phrase{}
	for _, f := range phrases {
		for _, word := range strings.Fields(f.first) {
			begun[word] = append(begun[word], f)
		}
	}
	return begun
}()

// phrasesIn returns the name of each phrase in a text, as often as it is there.
func phrasesIn(text string) []string {
	words := strings.FieldsFunc(strings.ReplaceAll(strings.ToLower(text), "'s", " 's "), func(r rune) bool {
		return r != '\'' && r != '-' && !unicode.IsLetter(r)
	})
	var names []string
	for i, word := range words {
		for _, f := range phraseBeginning[word] {
			if f.second == "" || i+1 < len(words) && slices.Contains(strings.Fields(f.second), words[i+1]) {
				names = append(names, f.name)
			}
		}
	}
	return names
}

const englishCounts = "testdata/english.txt"

// A tally counts phrases by file and by name.
type tally map[string]map[string]int

// A file may have each of the phrases as often as it had when they were first refused, or when it
// had fewest. So a change adds none, and old text can be rewritten package by package.
func TestNoChangeAddsAPhraseThatTheStyleRefuses(t *testing.T) {
	found, passages := tally{}, map[string][]string{}
	eachFile(t, func(name, text string) {
		for _, p := range prose(t, name, text) {
			for _, phrase := range phrasesIn(p.text) {
				if found[name] == nil {
					found[name] = map[string]int{}
				}
				found[name][phrase]++
				passages[name+phrase] = append(passages[name+phrase], fmt.Sprintf("%s:%d: %s", name, p.line, p.text))
			}
		}
	})
	allowed := readTally(t)
	if *update {
		allowed = lowered(allowed, found)
		writeTally(t, allowed)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		for phrase, many := range found[name] {
			if most := allowed[name][phrase]; many > most {
				t.Errorf("%s has %s %d times, and may have it %d times; STYLE.md has what to write instead:\n\t%s",
					name, phrase, many, most, strings.Join(passages[name+phrase], "\n\t"))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		for phrase, most := range allowed[name] {
			if many := found[name][phrase]; many < most {
				t.Errorf("%s has %s %d times, and may have it %d times: 'go test ./internal/treetest -run Style -update' lowers that",
					name, phrase, many, most)
			}
		}
	}
}

// lowered returns the lower number of each phrase: an update allows no new one.
func lowered(allowed, found tally) tally {
	least := tally{}
	for name, phrases := range found {
		for phrase, many := range phrases {
			if most := min(many, allowed[name][phrase]); most > 0 {
				if least[name] == nil {
					least[name] = map[string]int{}
				}
				least[name][phrase] = most
			}
		}
	}
	return least
}

// A line is the path of a file, and each phrase in it with its number.
func writeTally(t *testing.T, found tally) {
	t.Helper()
	var lines bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprint(&lines, name)
		for _, phrase := range slices.Sorted(maps.Keys(found[name])) {
			fmt.Fprintf(&lines, " %s=%d", phrase, found[name][phrase])
		}
		fmt.Fprintln(&lines)
	}
	if err := os.WriteFile(englishCounts, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readTally(t *testing.T) tally {
	t.Helper()
	data, err := os.ReadFile(englishCounts)
	if err != nil {
		t.Fatal(err)
	}
	counts := tally{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		counts[words[0]] = map[string]int{}
		for _, word := range words[1:] {
			phrase, number, _ := strings.Cut(word, "=")
			if counts[words[0]][phrase], err = strconv.Atoi(number); err != nil {
				t.Fatalf("%s: %q: %v", englishCounts, line, err)
			}
		}
	}
	return counts
}

func TestTheStyleHasAnExampleOfEachPhraseThatIsRefused(t *testing.T) {
	style, err := os.ReadFile(filepath.Join(root, "STYLE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range phrases {
		if found := phrasesIn(f.example); !slices.Equal(found, []string{f.name}) {
			t.Errorf("%q has %q, want %s", f.example, found, f.name)
		}
		if !strings.Contains(string(style), "| "+f.example+" |") {
			t.Errorf("STYLE.md has no row of %q", f.example)
		}
	}
}

// firstStyledCommit is the last commit before the rule for titles.
const firstStyledCommit = "77f67cfaba4b09b8e94543873d26a55a136d75cd"

var title = regexp.MustCompile(`^[a-z0-9][a-z0-9_./, -]*: [a-z0-9].*[^.]$`)

func TestTitlesOfCommitsNamePackageVerbAndObject(t *testing.T) {
	log := exec.CommandContext(t.Context(), "git", "log", "--no-merges", "--format=%h %s", firstStyledCommit+"..HEAD")
	log.Dir = root
	out, err := log.Output()
	if err != nil {
		t.Skipf("SKIPPED: the history of the clone does not reach back to %s: %v", firstStyledCommit, err)
	}
	for line := range strings.Lines(string(out)) {
		commit, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !title.MatchString(subject) || utf8.RuneCountInString(subject) > 60 {
			t.Errorf("%s: the title %q is not of the form 'package: verb object' in at most 60 characters", commit, subject)
		}
	}
}
