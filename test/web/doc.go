// SPDX-License-Identifier: Apache-2.0

// Package web holds the tests of the page of 'volferryctl web' in a real browser: the
// built program serves it of a registry or a daemon that is made up, and a headless
// Chromium shows it. They see the public surface only.
package web
