package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/transport/page/pagetest"
)

// How long a change takes until an open tab shows it: from the call of a tool on, which is part of the time.
func BenchmarkLive(b *testing.B) {
	s := serve(b, pagetest.Project(b), overHTTP...)
	call, page := pagetest.Connect(b, s.url, ""), browse(b, s)
	task := call.Task("Task", "")
	page.open("/board").run(`window.seen = {};
		new MutationObserver(() => document.querySelectorAll('.card > a').forEach(a => {
			seen[a.textContent] ??= Date.now();
		})).observe(document, {subtree: true, childList: true, characterData: true}); 0`)
	var all []int64
	for i := 0; b.Loop(); i++ {
		time.Sleep(300 * time.Millisecond) // else changes are told together, after a pause
		began, title := time.Now().UnixMilli(), fmt.Sprint("Title ", i)
		call("update_task", args{"task_id": task, "title": title}, nil)
		seen := fmt.Sprintf("seen[%q]", title)
		all = append(all, eval[int64](page.until(seen), seen)-began)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2]), "median-ms")
	b.ReportMetric(float64(all[len(all)-1]), "worst-ms(<=200)")
}
