// Package browser tests the pages with Chromium, the built program and agents that run scripts.
//
// Without Chromium its tests are skipped, unless DEEPWORK_TEST_BROWSER_REQUIRED is set;
// DEEPWORK_TEST_BROWSER=off skips them, too. With axe-core's axe.min.js, whose path is in
// DEEPWORK_TEST_AXE, accessibility is tested, too. DEEPWORK_TEST_SCREENSHOTS is a folder for pictures of
// every page, to look at.
package browser
