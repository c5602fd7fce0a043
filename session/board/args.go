package board

// The arguments of the board's tools (seed 004, "MCP task tool set"). Input schemas, forms on pages and flags
// of commands are made from their tags (tool.Argument). A nil pointer means that the argument was omitted or
// null. Ids are UUIDs, except RequestID, which the caller chooses.

// ListProjectsArgs are the arguments of list_projects.
type ListProjectsArgs struct {
	Limit  *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// ListReposArgs are the arguments of list_repos.
type ListReposArgs struct {
	ProjectID string  `json:"project_id" arg:"UUID, from list_projects"`
	Limit     *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor    *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// ListTasksArgs are the arguments of list_tasks (seed 004, "list_tasks provides
// attempt summary").
type ListTasksArgs struct {
	ProjectID string   `json:"project_id" arg:"UUID, from list_projects"`
	Status    *string  `json:"status" enum:"todo,inprogress,inreview,done,cancelled"`
	Labels    []string `json:"labels,omitempty" arg:"Labels that it has, all of them" max:"10"`
	Priority  *string  `json:"priority,omitempty" arg:"low, normal or high" enum:"low,normal,high"`
	Limit     *int     `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor    *string  `json:"cursor" arg:"next_cursor" max:"1000"`
	Text      string   `json:"-"` // for people: text in the title, ignoring case
}

// Tags implements fieldtag.Tagger.
func (ListTasksArgs) Tags() map[string]string {
	return map[string]string{
		"Status": `arg:"todo, inprogress, inreview, done or cancelled"`,
	}
}

// ListTaskAttemptsArgs are the arguments of list_task_attempts.
type ListTaskAttemptsArgs struct {
	TaskID string  `json:"task_id" arg:"UUID"`
	Limit  *int    `json:"limit" arg:"Default: 50" min:"1" max:"500"`
	Cursor *string `json:"cursor" arg:"next_cursor" max:"1000"`
}

// TaskArgs are the arguments of get_task.
type TaskArgs struct {
	TaskID string `json:"task_id" arg:"UUID"`
}

// CreateTaskArgs are the arguments of create_task.
type CreateTaskArgs struct {
	ProjectID    string   `json:"project_id" arg:"UUID, from list_projects"`
	Title        string   `json:"title" arg:"One line" max:"200"`
	Description  *string  `json:"description" arg:"The work in full" max:"100000"`
	JobName      *string  `json:"job_name" arg:"Job of the workflow to complete"`
	WorkflowName *string  `json:"workflow_name" arg:"Its workflow"`
	Inputs       Inputs   `json:"inputs,omitempty" arg:"Values of its inputs"`
	Lead         *string  `json:"lead,omitempty" arg:"server: an agent per step. Default: agent" enum:"agent,server"`
	Labels       []string `json:"labels,omitempty" arg:"Words, at most 40 characters each" max:"10"`
	Priority     *string  `json:"priority,omitempty" arg:"low, normal (the default) or high" enum:"low,normal,high"`
	DependsOn    []string `json:"depends_on,omitempty" arg:"UUIDs of tasks to be done first" max:"50"`
	RequestID    *string  `json:"request_id" arg:"Any text, for retries"`
}

// UpdateTaskArgs are the arguments of update_task. Omitted fields do not change; an empty description,
// job_name, workflow_name, inputs, labels or depends_on is cleared. Another workflow clears the inputs.
type UpdateTaskArgs struct {
	TaskID       string   `json:"task_id" arg:"UUID"`
	Title        *string  `json:"title" arg:"One line" max:"200"`
	Description  *string  `json:"description" arg:"The work in full" max:"100000"`
	Status       *string  `json:"status" enum:"todo,inprogress,inreview,done,cancelled"`
	JobName      *string  `json:"job_name" arg:"Job of the workflow to complete"`
	WorkflowName *string  `json:"workflow_name" arg:"Its workflow"`
	Inputs       Inputs   `json:"inputs,omitempty" arg:"Values of its inputs"`
	Labels       []string `json:"labels,omitempty" arg:"All that it is to have" max:"10"`
	Priority     *string  `json:"priority,omitempty" arg:"low, normal or high" enum:"low,normal,high"`
	DependsOn    []string `json:"depends_on" arg:"UUIDs of tasks to be done first" max:"50"`

	Group *string `json:"-"` // for the owner: the group of tokens to which it is given; "" takes it back
}

// Tags implements fieldtag.Tagger.
func (UpdateTaskArgs) Tags() map[string]string {
	return map[string]string{
		"Status": `arg:"todo, inprogress, inreview, done or cancelled"`,
	}
}

// Target names an attempt.
type Target struct {
	AttemptID *string `json:"attempt_id" arg:"UUID" required:"true"`
}
