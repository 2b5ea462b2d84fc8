//! Which cluster, and with what credentials.

use std::path::{Path, PathBuf};

use hyper::Uri;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedCluster};

/// What the command line says of the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// `--kubeconfig`: a file with address and credentials. Without it: those of the pod that this is, else those of
    /// `kubectl` (`$KUBECONFIG`, `~/.kube/config`).
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: the server's address, whatever the credentials say. Alone it is a server that asks for none.
    pub master: Option<String>,
}

/// A cluster that can be asked.
#[derive(Clone, Debug)]
pub struct Cluster(pub(super) Config);

/// Why there is no cluster to ask.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file that `--kubeconfig` names.
    #[error("cannot use kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// Nothing says where the cluster is.
    #[error(
        "there is no cluster to ask: this is no pod ({no_pod}), and there is no kubeconfig ({no_kubeconfig}); give \
         --kubeconfig PATH, or --manifests PATH to do without a cluster"
    )]
    Nowhere {
        /// Why these are no pod's credentials.
        no_pod: String,
        /// Why there are none of `kubectl` either.
        no_kubeconfig: String,
    },
    /// The address that `--master` gives.
    #[error("--master {text} is no http:// or https:// address")]
    Master {
        /// As given.
        text: String,
    },
    /// TLS or other credentials do not work out.
    #[error("cannot make a client for {address}: {source}")]
    Client {
        /// Of the server.
        address: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl Cluster {
    /// Finds the cluster. Contacts nobody, except where a kubeconfig names a program that has the credentials.
    ///
    /// # Errors
    /// [`ClusterError`] where there is none, or where what is given cannot be used.
    pub async fn find(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let master = options.master.as_deref().map(parse_address).transpose()?;
        let found = match &options.kubeconfig {
            Some(path) => from_file(path).await,
            None => from_surroundings().await,
        };
        let mut config = match (found, &master) {
            (Err(ClusterError::Nowhere { .. }), Some(master)) => Config::new(master.clone()),
            (found, _) => found?,
        };
        if let Some(master) = master {
            config.cluster_url = master;
        }
        Ok(Self(config))
    }

    /// The server's address.
    pub fn address(&self) -> String {
        self.0.cluster_url.to_string()
    }
}

async fn from_file(path: &Path) -> Result<Config, ClusterError> {
    let config = async { from_kubeconfig(Kubeconfig::read_from(path)?).await };
    config.await.map_err(|error| ClusterError::Kubeconfig { path: path.to_owned(), cause: cause(&error) })
}

async fn from_surroundings() -> Result<Config, ClusterError> {
    let no_pod = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => error.to_string(),
    };
    let config = async { from_kubeconfig(Kubeconfig::read()?).await };
    config.await.map_err(|error| ClusterError::Nowhere { no_pod, no_kubeconfig: cause(&error) })
}

/// In one line: an error of the YAML parser shows the text around it.
fn cause(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => error.without_snippet().to_string(),
        KubeconfigError::ReadConfig(error, path) => format!("cannot read {}: {error}", path.display()),
        error => error.to_string(),
    }
}

async fn from_kubeconfig(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let names_proxy =
        |cluster: &NamedCluster| cluster.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some());
    let own_proxy = kubeconfig.clusters.iter().any(names_proxy);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    if !own_proxy {
        // kube takes $HTTPS_PROXY for every server, those on loopback too. A node reaches its API server without it.
        config.proxy_url = None;
    }
    Ok(config)
}

fn parse_address(text: &str) -> Result<Uri, ClusterError> {
    let address = text.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    address.ok_or_else(|| ClusterError::Master { text: text.to_owned() })
}
