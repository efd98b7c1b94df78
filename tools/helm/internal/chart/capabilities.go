package chart

import (
	"slices"
	"strings"
	"text/template/parse"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
)

const capabilities = "Capabilities"

// readsCapabilities reports whether a template or the default values of the chart or of a subchart use .Capabilities.
//
// It does not detect the lookup function, nor templates in user-supplied values that the chart passes to tpl.
func readsCapabilities(chart *helmchart.Chart) bool {
	if strings.Contains(rawFile(chart, "values.yaml"), "."+capabilities) {
		return true
	}
	for _, file := range chart.Templates {
		if TemplateReadsCapabilities(file.Name, string(file.Data)) {
			return true
		}
	}
	return slices.ContainsFunc(chart.Dependencies(), readsCapabilities)
}

// TemplateReadsCapabilities reports whether the text of a template uses .Capabilities.
func TemplateReadsCapabilities(name, text string) bool {
	if !strings.Contains(text, capabilities) {
		return false
	}
	tree := parse.New(name)
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		// Helm reports the parse error later. Until then, assume that the template uses it.
		return true
	}
	for _, tree := range trees {
		if tree.Root != nil && nodeReadsCapabilities(tree.Root) {
			return true
		}
	}
	return false
}

func nodeReadsCapabilities(node parse.Node) bool {
	switch node := node.(type) {
	case *parse.ListNode:
		return node != nil && slices.ContainsFunc(node.Nodes, nodeReadsCapabilities)
	case *parse.ActionNode:
		return pipeReadsCapabilities(node.Pipe)
	case *parse.TemplateNode:
		return pipeReadsCapabilities(node.Pipe)
	case *parse.IfNode:
		return branchReadsCapabilities(&node.BranchNode)
	case *parse.RangeNode:
		return branchReadsCapabilities(&node.BranchNode)
	case *parse.WithNode:
		return branchReadsCapabilities(&node.BranchNode)
	case *parse.PipeNode:
		return pipeReadsCapabilities(node)
	case *parse.CommandNode:
		return slices.ContainsFunc(node.Args, nodeReadsCapabilities)
	case *parse.FieldNode:
		return slices.Contains(node.Ident, capabilities)
	case *parse.VariableNode:
		return slices.Contains(node.Ident, capabilities)
	case *parse.ChainNode:
		return slices.Contains(node.Field, capabilities) || nodeReadsCapabilities(node.Node)
	case *parse.StringNode:
		// Matches `index . "Capabilities"` and strings that contain a template for tpl.
		return node.Text == capabilities || strings.Contains(node.Text, "."+capabilities)
	default:
		return false
	}
}

func pipeReadsCapabilities(pipe *parse.PipeNode) bool {
	return pipe != nil && slices.ContainsFunc(pipe.Cmds, func(command *parse.CommandNode) bool {
		return nodeReadsCapabilities(command)
	})
}

func branchReadsCapabilities(branch *parse.BranchNode) bool {
	return pipeReadsCapabilities(branch.Pipe) || nodeReadsCapabilities(branch.List) || nodeReadsCapabilities(branch.ElseList)
}
