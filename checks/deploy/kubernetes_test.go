// SPDX-License-Identifier: MIT

package deploy

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// A manifest is a file of Kubernetes objects.
type manifest struct {
	config  string // of the service
	replica int32
	pod     core.PodSpec
	claims  []core.PersistentVolumeClaim
	service core.Service
	labels  map[string]string // of the pods
	selects []map[string]string
}

// strict decodes an object as the server of Kubernetes does: a field that its type does not have, or has in another case, is
// an error.
func strict(text string, into any) error {
	object, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return err
	}
	wrong, err := kjson.UnmarshalStrict(object, into)
	return errors.Join(append(wrong, err)...)
}

// parse reads a manifest. It fails on a field that the types of Kubernetes do not have.
func parse(t *testing.T, name string) (m manifest) {
	t.Helper()
	for _, text := range strings.Split(read(t, name), "\n---\n") {
		var is struct{ APIVersion, Kind string }
		check(t, yaml.Unmarshal([]byte(text), &is))
		into := func(v any) {
			t.Helper()
			if err := strict(text, v); err != nil {
				t.Fatalf("%s, %s: %v", name, is.Kind, err)
			}
		}
		switch is.APIVersion + " " + is.Kind {
		case "v1 ConfigMap":
			var c core.ConfigMap
			into(&c)
			m.config = c.Data["serve.json"]
		case "v1 Service":
			into(&m.service)
			m.selects = append(m.selects, m.service.Spec.Selector)
		case "apps/v1 StatefulSet":
			var s apps.StatefulSet
			into(&s)
			m.pod, m.labels, m.claims, m.replica = s.Spec.Template.Spec, s.Spec.Template.Labels, s.Spec.VolumeClaimTemplates, *s.Spec.Replicas
			m.selects = append(m.selects, s.Spec.Selector.MatchLabels)
			if s.Spec.ServiceName != m.service.Name {
				t.Errorf("%s: the service of the set is %q", name, s.Spec.ServiceName)
			}
		case "apps/v1 Deployment":
			var d apps.Deployment
			into(&d)
			m.pod, m.labels, m.replica = d.Spec.Template.Spec, d.Spec.Template.Labels, *d.Spec.Replicas
			m.selects = append(m.selects, d.Spec.Selector.MatchLabels)
		case "policy/v1 PodDisruptionBudget":
			var b policy.PodDisruptionBudget
			into(&b)
			m.selects = append(m.selects, b.Spec.Selector.MatchLabels)
		default:
			t.Errorf("%s has a %s %s", name, is.APIVersion, is.Kind)
		}
	}
	return m
}

// The manifests have the fields that Kubernetes knows, and fit each other, the image and the configuration in them, which
// the service accepts.
func TestManifests_fitKubernetesAndTheService(t *testing.T) {
	file := built(t)
	user, _, _ := strings.Cut(one(t, read(t, "Dockerfile"), `^USER (\S+)$`), ":")
	for name, embedded := range map[string]bool{"kubernetes/embedded.yaml": true, "kubernetes/postgres.yaml": false} {
		m := parse(t, name)
		for _, labels := range m.selects {
			for label, value := range labels {
				if m.labels[label] != value {
					t.Errorf("%s: the pods have no label %s=%s", name, label, value)
				}
			}
		}
		c, s := m.pod.Containers[0], m.pod.SecurityContext
		own := c.SecurityContext
		if !*s.RunAsNonRoot || user != jsonText(t, *s.RunAsUser) || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
			*own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem || !slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}) ||
			*m.pod.AutomountServiceAccountToken {
			t.Errorf("%s: the pod has rights that it does not need", name)
		}
		ports := make(map[string]bool)
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, p := range m.service.Spec.Ports {
			if !ports[p.TargetPort.String()] {
				t.Errorf("%s: the service has the port %s, and the pods do not", name, p.TargetPort.String())
			}
		}
		for path, probe := range map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if get := probe.HTTPGet; get.Path != path || get.Port.String() != "admin" || get.Scheme != core.URISchemeHTTPS {
				t.Errorf("%s: the probe of %s is %+v", name, path, get)
			}
		}
		var of struct{ Grace, Drain string }
		check(t, json.Unmarshal([]byte(m.config), &of))
		grace, err := time.ParseDuration(of.Grace)
		check(t, err)
		drain, err := time.ParseDuration(of.Drain)
		check(t, err)
		if end := time.Duration(*m.pod.TerminationGracePeriodSeconds) * time.Second; end <= grace+drain {
			t.Errorf("%s: a pod has %v for its end, and needs more than %v", name, end, grace+drain)
		}
		notices := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second
		if grace <= notices {
			t.Errorf("%s: the grace is %v, and the probe needs %v", name, grace, notices)
		}
		mounted := make(map[string]bool)
		for _, v := range c.VolumeMounts {
			mounted[v.Name] = true
		}
		for _, v := range m.pod.Volumes {
			if !mounted[v.Name] {
				t.Errorf("%s: the volume %s is not mounted", name, v.Name)
			}
			delete(mounted, v.Name)
		}
		for _, claim := range m.claims {
			delete(mounted, claim.Name)
		}
		if len(mounted) > 0 {
			t.Errorf("%s: there are no volumes %v", name, mounted)
		}
		if embedded != (len(m.claims) == 1) || embedded && m.replica != 1 || embedded != slices.Contains(c.Command, "-dir") ||
			!embedded != (len(c.Env) == 1 && c.Env[0].Name == "TIMEWHEEL_DB") {
			t.Errorf("%s: the store is not where it should be", name)
		}
		accepted(t, file, name, m.config)
	}
}

// accepted checks that the service accepts a configuration, when its files are there.
func accepted(t *testing.T, file, name, config string) {
	t.Helper()
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "tokens"), 0o700))
	for _, secret := range regexp.MustCompile(`file:/etc/timewheel/(tokens/\w+)`).FindAllStringSubmatch(config, -1) {
		check(t, os.WriteFile(filepath.Join(dir, secret[1]), []byte("a secret of the tests: "+secret[1]), 0o600))
	}
	check(t, os.MkdirAll(filepath.Join(dir, "tls"), 0o700))
	certify(t, filepath.Join(dir, "tls", "tls.crt"), filepath.Join(dir, "tls", "tls.key"))
	path := filepath.Join(dir, "serve.json")
	check(t, os.WriteFile(path, []byte(strings.ReplaceAll(config, "/etc/timewheel", dir)), 0o600))
	if out, err := exec.Command(file, "serve", "-config", path, "-check").CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", name, err, out)
	}
}

// The types refuse a field that they do not have.
func TestManifests_misspelledField_isRefused(t *testing.T) {
	text := strings.SplitAfter(read(t, "kubernetes/embedded.yaml"), "\n---\n")[2]
	for _, c := range []struct {
		text  string
		fails bool
	}{{text, false}, {strings.Replace(text, "readOnlyRootFilesystem", "readonlyRootFileSystem", 1), true}} {
		if err := strict(strings.TrimSuffix(c.text, "---\n"), new(apps.StatefulSet)); (err != nil) != c.fails {
			t.Errorf("%v, want an error: %v", err, c.fails)
		}
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	check(t, err)
	return string(text)
}
