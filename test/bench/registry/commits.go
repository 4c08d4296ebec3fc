// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// commits are what the registry's metrics say of its commits.
type commits struct {
	count, changes float64
	took           time.Duration // all of them together
}

// since are the commits after an earlier reading.
func (c commits) since(earlier commits) commits {
	return commits{count: c.count - earlier.count, changes: c.changes - earlier.changes, took: c.took - earlier.took}
}

// readCommits asks the registry for its commits since it started.
func (b *bench) readCommits(ctx context.Context) (c commits, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/metrics", nil)
	if err != nil {
		return c, fmt.Errorf("ask for metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return c, fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	var seconds float64
	missing := map[string]*float64{
		"volferry_registry_commit_batch_size_count": &c.count, "volferry_registry_commit_batch_size_sum": &c.changes, "volferry_registry_commit_seconds_sum": &seconds,
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		into := missing[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return c, fmt.Errorf("read metrics: %w", err)
		}
		delete(missing, name)
	}
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("read metrics: %w", err)
	}
	if len(missing) > 0 {
		return c, fmt.Errorf("read metrics: answer %d does not say all of commits", answer.StatusCode)
	}
	c.took = time.Duration(seconds * float64(time.Second))
	return c, nil
}
