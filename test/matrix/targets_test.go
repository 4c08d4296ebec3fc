// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"strings"
	"testing"
)

const makefile = `
GO ?= go
test-some: build ## Some of them
	@echo first
	VARIABLE=1 $(GO) test -v -run '^Test(A|B)$$' ./test/e2e; \
		ended=$$?; exit $$ended

test-all: ## All of them
	$(GO) test ./test/e2e ./test/power/...

bench:
	$(GO) test -run '^$$' -bench . ./daemon/...

test-storage:
	VOLFERRY_STORAGE_RUN='^TestStorageOf$$' $(GO) test -v ./test/storage

test-storage-all:
	$(GO) test -v ./test/storage
`

func targetsOf(t *testing.T) Targets {
	t.Helper()
	all, err := ReadTargets(makefile)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheTargetOfATestIsTheOneThatNamesItBeforeOneThatHasItsPackage(t *testing.T) {
	for want, of := range map[string][]Test{
		"test-some":        {{Kernel, "test/e2e", "TestA"}, {Asked, "test/e2e", "TestB/sub"}},
		"test-all":         {{Kernel, "test/e2e", "TestAB"}, {Killed, "test/power/tape", "TestA"}},
		"test-storage":     {{Asked, "test/e2e", "TestStorageOf"}},
		"test-storage-all": {{Asked, "test/e2e", "TestStorageOfAll"}},
		"test-unit":        {{Fake, "daemon", "TestA"}},
	} {
		for _, one := range of {
			if got := targetsOf(t).of(one); got != want {
				t.Errorf("%s %s is of %s, want %s", one.Package, one.Name, got, want)
			}
		}
	}
}

func TestTheRowsThatATargetLeavesAreSaidWithTheTargetsThatRunThem(t *testing.T) {
	phases, err := parse(`phase X Trial
X1 run here, and by a fake elsewhere
  holds: something
  kill: test/e2e TestA/sub
  fake: daemon TestC
X2 run elsewhere
  holds: something
  kill: test/e2e TestC
  asked: test/e2e TestStorageOf
X3 run here by a fake alone
  holds: something
  lacks: all
  fake: daemon TestA
X4 run nowhere
  never: it cannot
`)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	targetsOf(t).LeftBy(&said, "test-some", phases)
	const want = `make test-some has real tests of 1 of the 3 rows of the failure matrix that have tests, and of the others none:
  make test-all, make test-storage: X2
  make test-unit: X3
`
	if said.String() != want {
		t.Errorf("it says\n%s, want\n%s", said.String(), want)
	}
}

func TestATargetWithoutAPatternThatCanBeReadIsRefused(t *testing.T) {
	if _, err := ReadTargets("test-a:\n\t$(GO) test -run '(' ./a\n"); err == nil || !strings.Contains(err.Error(), "test-a") {
		t.Errorf("it is read: %v", err)
	}
}
