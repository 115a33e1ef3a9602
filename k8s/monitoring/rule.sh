#!/bin/sh
# Writes prometheusrule.yaml: alerts.yml, which promtool tests read, as the Prometheus operator's.
set -eu
cd "$(dirname "$0")"
{
  printf '%s\n' '# Written by rule.sh from alerts.yml.' \
    'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
    'metadata: {name: vmem}' 'spec:'
  sed -e '/^#/d' -e 's/^\(.\)/  \1/' alerts.yml
} > prometheusrule.yaml
