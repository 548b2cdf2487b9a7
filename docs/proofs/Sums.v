(** Finite sums over lists.

    A row of attention is a list [l] of token indices of any type, with weights, radii and errors as functions of the
    index.  Nothing below asks the list to be free of duplicates unless it says so: a repeated index is simply a second
    token with the same numbers. *)

From Coq Require Import Reals List Lra Lia Permutation.
Import ListNotations.
Open Scope R_scope.

Section Sums.
Context {I : Type}.

Fixpoint Sum (l : list I) (f : I -> R) : R :=
  match l with
  | [] => 0
  | t :: l' => f t + Sum l' f
  end.

Lemma Sum_ext l f g : (forall t, In t l -> f t = g t) -> Sum l f = Sum l g.
Proof.
  induction l as [|a l IH]; simpl; intros H; [reflexivity|].
  rewrite H by auto. rewrite IH; auto.
Qed.

Lemma Sum_le l f g : (forall t, In t l -> f t <= g t) -> Sum l f <= Sum l g.
Proof.
  induction l as [|a l IH]; simpl; intros H; [lra|].
  assert (f a <= g a) by auto. assert (Sum l f <= Sum l g) by auto. lra.
Qed.

Lemma Sum_0 l f : (forall t, In t l -> f t = 0) -> Sum l f = 0.
Proof.
  induction l as [|a l IH]; simpl; intros H; [reflexivity|].
  rewrite H by auto. rewrite IH by auto. lra.
Qed.

Lemma Sum_nonneg l f : (forall t, In t l -> 0 <= f t) -> 0 <= Sum l f.
Proof.
  intros H. rewrite <- (Sum_0 l (fun _ => 0)) by auto. now apply Sum_le.
Qed.

Lemma Sum_pos l f : l <> [] -> (forall t, In t l -> 0 < f t) -> 0 < Sum l f.
Proof.
  destruct l as [|a l]; [congruence|]. intros _ H. simpl.
  assert (0 < f a) by (apply H; now left).
  assert (0 <= Sum l f) by (apply Sum_nonneg; intros t Ht; left; apply H; now right). lra.
Qed.

Lemma Sum_plus l f g : Sum l (fun t => f t + g t) = Sum l f + Sum l g.
Proof. induction l as [|a l IH]; simpl; lra. Qed.

Lemma Sum_minus l f g : Sum l (fun t => f t - g t) = Sum l f - Sum l g.
Proof. induction l as [|a l IH]; simpl; lra. Qed.

Lemma Sum_opp l f : Sum l (fun t => - f t) = - Sum l f.
Proof. induction l as [|a l IH]; simpl; lra. Qed.

Lemma Sum_scal l k f : Sum l (fun t => k * f t) = k * Sum l f.
Proof. induction l as [|a l IH]; simpl; [lra|]. rewrite IH; ring. Qed.

Lemma Sum_scal_r l k f : Sum l (fun t => f t * k) = Sum l f * k.
Proof. induction l as [|a l IH]; simpl; [lra|]. rewrite IH; ring. Qed.

Lemma Sum_div l k f : Sum l (fun t => f t / k) = Sum l f / k.
Proof. unfold Rdiv. apply Sum_scal_r. Qed.

Lemma Sum_const l k : Sum l (fun _ => k) = INR (length l) * k.
Proof.
  induction l as [|a l IH]; [simpl; lra|].
  change (length (a :: l)) with (S (length l)). rewrite S_INR. simpl. rewrite IH. ring.
Qed.

Lemma Sum_app l1 l2 f : Sum (l1 ++ l2) f = Sum l1 f + Sum l2 f.
Proof. induction l1 as [|a l IH]; simpl; lra. Qed.

Lemma Sum_perm l1 l2 f : Permutation l1 l2 -> Sum l1 f = Sum l2 f.
Proof. induction 1; simpl; lra. Qed.

Lemma Sum_Rabs l f : Rabs (Sum l f) <= Sum l (fun t => Rabs (f t)).
Proof.
  induction l as [|a l IH]; simpl; [rewrite Rabs_R0; lra|].
  apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

Lemma Sum_ge_one l f t : (forall s, In s l -> 0 <= f s) -> In t l -> f t <= Sum l f.
Proof.
  induction l as [|a l IH]; simpl; intros H Ht; [easy|]. destruct Ht as [->|Ht].
  - assert (0 <= Sum l f) by (apply Sum_nonneg; auto). lra.
  - assert (0 <= f a) by auto. assert (f t <= Sum l f) by auto. lra.
Qed.

(** One sum split by a boolean. *)
Lemma Sum_split l (T : I -> bool) f :
  Sum l f = Sum l (fun t => if T t then f t else 0) + Sum l (fun t => if T t then 0 else f t).
Proof. rewrite <- Sum_plus. apply Sum_ext. intros t _. destruct (T t); lra. Qed.

(** Cauchy-Schwarz with nonnegative weights, without square roots; first its inductive step. *)
Lemma CS_step w a b S F G :
  0 <= w -> 0 <= F -> 0 <= G -> S^2 <= F * G ->
  (w * (a * b) + S)^2 <= (w * a^2 + F) * (w * b^2 + G).
Proof.
  intros Hw HF HG HS.
  assert (K : 2 * (a * b) * S <= a^2 * G + b^2 * F).
  { destruct (Req_dec G 0) as [E|E].
    - subst G. assert (S = 0) by (apply Rsqr_0_uniq; unfold Rsqr; nra). subst S. nra.
    - assert (0 < G) by lra.
      apply Rmult_le_reg_l with G; [assumption|].
      assert (0 <= (a * G - b * S)^2) by apply pow2_ge_0.
      assert (0 <= b^2 * (F * G - S^2)) by (apply Rmult_le_pos; [apply pow2_ge_0|lra]).
      nra. }
  assert (0 <= w * (a^2 * G + b^2 * F - 2 * (a * b) * S)) by (apply Rmult_le_pos; lra).
  nra.
Qed.

Lemma Sum_CS l w f g :
  (forall t, In t l -> 0 <= w t) ->
  (Sum l (fun t => w t * (f t * g t)))^2
  <= Sum l (fun t => w t * (f t)^2) * Sum l (fun t => w t * (g t)^2).
Proof.
  intros H. induction l as [|a l IH].
  - simpl. lra.
  - change (Sum (a :: l) ?f) with (f a + Sum l f). cbv beta.
    apply CS_step.
    + apply H. now left.
    + apply Sum_nonneg. intros t Ht. apply Rmult_le_pos; [apply H; now right|apply pow2_ge_0].
    + apply Sum_nonneg. intros t Ht. apply Rmult_le_pos; [apply H; now right|apply pow2_ge_0].
    + apply IH. intros t Ht. apply H. now right.
Qed.

End Sums.

(** Sums over two indices may be exchanged. *)
Lemma Sum_swap {I J : Type} (l : list I) (m : list J) (f : I -> J -> R) :
  Sum l (fun i => Sum m (fun j => f i j)) = Sum m (fun j => Sum l (fun i => f i j)).
Proof.
  induction l as [|a l IH]; simpl.
  - symmetry. now apply Sum_0.
  - rewrite IH. now rewrite Sum_plus.
Qed.

Lemma Sum_map {I J : Type} (g : I -> J) (l : list I) (f : J -> R) :
  Sum (map g l) f = Sum l (fun i => f (g i)).
Proof. induction l as [|a l IH]; simpl; congruence. Qed.

Lemma Sum_concat {I : Type} (ls : list (list I)) (f : I -> R) :
  Sum (concat ls) f = Sum ls (fun l => Sum l f).
Proof. induction ls as [|a l IH]; simpl; [reflexivity|]. rewrite Sum_app. congruence. Qed.

(** Sums over a list grouped by a key: every element lies in exactly one group. *)
Lemma Sum_group {I J : Type} (eqb : forall a b : J, {a = b} + {a <> b}) (l : list I) (js : list J)
  (key : I -> J) (f : I -> R) :
  NoDup js -> (forall t, In t l -> In (key t) js) ->
  Sum js (fun j => Sum l (fun t => if eqb (key t) j then f t else 0)) = Sum l f.
Proof.
  intros Hn H. rewrite Sum_swap. apply Sum_ext. intros t Ht.
  specialize (H t Ht). clear Ht.
  induction js as [|a js IH]; [easy|]. simpl. inversion_clear Hn as [|? ? Ha Hn'].
  destruct H as [->|H].
  - destruct (eqb (key t) (key t)); [|congruence].
    rewrite Sum_0; [lra|]. intros j Hj. destruct (eqb (key t) j) as [E|]; [|reflexivity].
    subst. contradiction.
  - destruct (eqb (key t) a) as [<-|]; [contradiction|]. rewrite IH by auto. lra.
Qed.
